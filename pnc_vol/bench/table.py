"""Results are shown as a table, as JSON and as a picture.

Knows: `Result`. Does not know: where it came from. matplotlib is loaded when a picture is asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from pnc_vol.bench.measure import US, Result, kernel_text

__all__ = ["machine", "plot", "print_table", "to_json"]


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = kernel_text("/proc/cpuinfo").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    load, system = [round(value, 2) for value in os.getloadavg()], f"{platform.system()} {platform.release()}"
    return {
        "cpu": model, "cores": os.cpu_count(), "load": load, "system": system, "python": platform.python_version(),
    }  # fmt: skip


def print_table(results: Sequence[Result]) -> None:
    """Print medians with their range, and the ratio of each peer to pnc_vol in brackets; then memory, bytes and
    requests, and what was left out and why: a note that all works have stands once."""
    peers = list(dict.fromkeys(peer for result in results for peer in result.seconds))
    _print_columns([["seconds", *peers], *([r.work, *(_seconds(r, peer) for peer in peers)] for r in results)])
    print("\nmedian (fastest-slowest) [peer / pnc_vol: above 1, pnc_vol is faster]\n")
    if any(result.nbytes is not None or result.memory for result in results):
        _print_columns([["peak memory over the start", "bytes", "requests", *peers]] + [
            [r.work, _amount(r.nbytes), f"{r.requests:,}" if r.requests else "-",
             *(_amount(r.memory.get(peer)) for peer in peers)] for r in results
        ])  # fmt: skip
        print()
    notes: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for note in result.notes.items():
            notes.setdefault(note, []).append(result.work)
    for (peer, reason), works in notes.items():
        print(f"- {peer}{'' if len(works) == len(results) else ', ' + '; '.join(works)}: {reason}")


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]).rstrip())


def _seconds(result: Result, peer: str) -> str:
    median = result.median(peer)
    if median is None:
        return "-"
    found, digits = result.seconds[peer], 3 if median >= 0.1 else 4
    text = f"{median:.{digits}f} ({min(found):.{digits}f}-{max(found):.{digits}f})"
    ratio = result.ratio(peer)
    return text if peer == US or ratio is None else f"{text} [{ratio:.2f}]"


def _amount(nbytes: int | None) -> str:
    if nbytes is None:
        return "-"
    return f"{nbytes / (1 << 20):.1f} MiB" if nbytes >= 1 << 17 else f"{nbytes / 1024:.1f} KiB"


def to_json(results: Sequence[Result], more: Mapping[str, Any]) -> str:
    """Return all that was measured, for programs; seconds and bytes."""
    rows = [
        {"work": r.work, "bytes": r.nbytes, "requests": r.requests, "seconds": r.seconds, "memory": r.memory,
         "notes": r.notes, **({"quickest_rank": r.quickest} if r.quickest else {})}
        for r in results
    ]  # fmt: skip
    return json.dumps({"machine": machine(), **more, "results": rows}, indent=1)


def plot(results: Sequence[Result], path: str, title: str) -> None:
    """Plot the seconds of each work, one bar a peer with its range, on a logarithmic axis.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    shown = [result for result in results if any(result.seconds.values())]
    peers = list(dict.fromkeys(peer for result in shown for peer in result.seconds if result.seconds[peer]))
    height = 0.8 / max(1, len(peers))
    figure = Figure(figsize=(9, 1.2 + len(shown) * (0.25 + 0.16 * len(peers))), layout="constrained")
    axes = figure.subplots()
    for i, peer in enumerate(peers):
        at = [(j, r.median(peer) or 0.0, r.seconds[peer]) for j, r in enumerate(shown) if r.seconds.get(peer)]
        bars = axes.barh(
            [j + (i - (len(peers) - 1) / 2) * height for j, _, _ in at], [m for _, m, _ in at], height * 0.92,
            label=peer, color=f"C{i}", xerr=[[m - min(s) for _, m, s in at], [max(s) - m for _, m, s in at]],
            error_kw={"elinewidth": 0.8, "ecolor": "0.3"},
        )  # fmt: skip
        axes.bar_label(bars, [f"{m:.3g}" for _, m, _ in at], padding=4, fontsize=7)
    axes.set_yticks(range(len(shown)), [result.work for result in shown])
    axes.set(xscale="log", ylim=(len(shown) - 0.45, -0.55))
    axes.margins(x=0.12)
    axes.set_xlabel("seconds (median; lines: fastest to slowest); shorter is better")
    axes.grid(axis="x", which="major", color="0.9")
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=min(4, len(peers)), frameon=False)
    about = machine()
    axes.set_title(f"{title}\n{about['cpu']}, {about['cores']} cores", fontsize=10, loc="left")
    figure.savefig(path, dpi=120)
