"""``python tools/scale``: what a flush of a large run costs, by its plan and a file of prices.

The plan is the real one of each rank (`planned_write`), for maps of the published sizes; nothing is written.
Prices are those of `Costs`, or of a JSON file (``--parameters``). The result is a prediction: published figures of
other programs stand below it.

Knows: cases, plans, prices, text. Does not know: ranks that run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from planned_write import Planned, blocks, planned, way_of
from prices import FLUSH_REDUCTIONS, Costs, seconds_alone, seconds_together
from published_runs import CASES, flushes_of

from pnc_vol.ranks.places import Nodes
from pnc_vol.settings.options import Options, parse_hints

_GIB, _MIB = 1 << 30, 1 << 20


def arguments(one: argparse.ArgumentParser) -> None:
    """Options of the command."""
    one.add_argument("--case", choices=[*CASES], default="F", help="E3SM's F, G or I, or FLASH (F)")
    one.add_argument("--ranks", type=int, help="default: as published")
    one.add_argument("--nodes", type=int, help="default: as published; otherwise 64 ranks on each")
    one.add_argument("--size", type=int, default=0, help="of the grid, as --synthetic of e3sm has it (as published)")
    one.add_argument("--parameters", help="JSON file with prices; without it round numbers, which --prices shows")
    one.add_argument("--prices", action="store_true", help="print the prices, as a file for --parameters has them")
    one.add_argument("--every", type=int, default=8, help="plan each so many-th node, the others are alike (8)")
    one.add_argument("--hints", type=parse_hints, default={}, help="hints of the run: key=value;key=value")


def report(options: argparse.Namespace) -> Iterator[str]:
    """Lines that tell what the flushes of a case cost."""
    costs = Costs.read(options.parameters) if options.parameters else Costs()
    if options.prices:
        yield costs.text()
        return
    case = CASES[options.case]
    ranks = options.ranks or case.ranks
    published = (ranks, options.size or case.size) == (case.ranks, case.size)
    nodes = blocks(ranks, options.nodes or (case.nodes if published else -(-ranks // 64)))
    yield f"{case.about}: {ranks} ranks on {len(nodes.lowest)} nodes"
    total = nbytes = 0.0
    for flush in flushes_of(options.case, ranks, size=options.size):
        way = way_of(nodes, int(flush.runs.max()), int(flush.nbytes.max()), Options(hints=options.hints))
        yield ""
        yield f"{flush.name}: {flush.bounds.nbytes / _GIB:.2f} GiB, {flush.bounds.pieces} pieces, {way}"
        yield f"  runs of the rank that has most    {flush.runs.max()}"
        yield f"  for maps of blobs, to each rank   {flush.listed / _MIB:.1f} MiB once, without decompositions"
        if way == "aggregate":
            plan = planned(nodes, flush.extents_of, hints=options.hints, bounds=flush.bounds, every=options.every)
            yield from _counts(nodes, plan)
            seconds = seconds_together(costs, nodes, flush, plan)
        else:
            yield f"  reductions                        {FLUSH_REDUCTIONS}"
            seconds = seconds_alone(costs, nodes, flush)
        yield from (f"  {name + ', s':<33} {value:.3f}" for name, value in seconds.items())
        once = sum(seconds.values())
        yield f"  {'predicted, s':<33} {once:.2f}  ({flush.bounds.nbytes / _GIB / once:.2f} GiB/s)"
        total, nbytes = total + flush.times * once, nbytes + flush.times * flush.bounds.nbytes
    opening = costs.open + ranks / costs.open_rate
    yield ""
    yield f"opening, s                          {opening:.2f}"
    nbytes /= _GIB
    yield f"all flushes, s                      {total:.2f}  ({nbytes:.1f} GiB, {nbytes / total:.2f} GiB/s)"
    if published:
        yield from (f"published                           {line}" for line in case.published)


def _counts(nodes: Nodes, plan: Planned) -> Iterator[str]:
    """What a plan counts."""
    domains, several = plan.domains, len(nodes.lowest) > 1
    own, shared = int(plan.own_memory.max()), int(plan.node_memory.max())
    aggregators = int(np.bincount([nodes.of(rank) for rank in plan.aggregators]).max())
    rows = [
        ("aggregators", f"{domains.count}, {aggregators} of a node"),
        ("rounds", f"{plan.rounds}, windows of {domains.window / _MIB:.2f} MiB"),
        ("reductions of a rank", f"{FLUSH_REDUCTIONS + plan.reductions}"),
        ("messages of a rank, median", f"{int(np.median(plan.messages))}, {int(np.median(plan.bytes_sent))} bytes"),
        ("messages of a rank, most", f"{plan.messages.max()}, {plan.bytes_sent.max() / _MIB:.1f} MiB"),
        ("messages between nodes", f"{plan.between_nodes.sum()}, {plan.out.sum() / _GIB:.2f} GiB"),
        ("memory of a rank, MiB", f"{own / _MIB:.1f}, and {shared / _MIB:.1f} that a node shares"),
        ("calls of an aggregator", f"{2 * plan.windows.max()}"),
    ]
    if several:
        rows.append(("parcels into a window", f"{plan.parcels_into.max()}"))
    yield from (f"  {name:<33} {value}" for name, value in rows)


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python tools/scale", description=__doc__)
    arguments(parser)
    for line in report(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
