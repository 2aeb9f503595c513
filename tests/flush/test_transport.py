"""Which way ranks write follows from what they agreed on; who writes for others from where they are."""

from __future__ import annotations

from typing import Any

import pytest

from pnc_vol.comm import Comm
from pnc_vol.flush.aggregators import Wanted, aggregators
from pnc_vol.flush.agree import Agreement
from pnc_vol.flush.choice import Weight, transport_code
from pnc_vol.flush.transport import Transport
from pnc_vol.options import resolve
from pnc_vol.rank_places import Nodes

NOTHING = Agreement(
    drained=False, widened=False, changed=False, unknown_bytes=False, lost=False,
    records=0, runs=0, nbytes=0, batches=1, rounds=1, transport=0, aggregators=0,
)  # fmt: skip


class Four(Comm):
    """Four ranks, as far as a choice looks at them."""

    size = 4


def places(lowest: list[int]) -> Nodes:
    """Ranks by the lowest rank of the node of each; nodes have two cores."""
    order = sorted(set(lowest))
    starts = [rank for rank, one in enumerate(lowest) if rank == 0 or lowest[rank - 1] != one]
    return Nodes(
        tuple(order), (2,) * len(order), tuple(starts), tuple(order.index(lowest[s]) for s in starts), len(lowest)
    )


def transport(*, nodes: list[int], collective: bool = True, **options: Any) -> Transport:
    made = Transport(Four(), resolve(options, environ={}), collective=collective)
    made._nodes = places(nodes)
    return made


ONE_NODE, TWO_NODES = [0, 0, 0, 0], [0, 0, 2, 2]


@pytest.mark.parametrize(
    ("nodes", "runs", "nbytes", "way"),
    [
        (ONE_NODE, 0, 0, "independent"),
        (ONE_NODE, 1, 1 << 30, "independent"),
        (ONE_NODE, 256, 256 << 20, "independent"),
        (ONE_NODE, 100, 800, "independent"),
        (ONE_NODE, 100_000, 800_000, "aggregate"),
        (ONE_NODE, 100_000, 100_000 << 20, "independent"),
        (TWO_NODES, 1, 10, "independent"),
        (TWO_NODES, 100, 800, "aggregate"),
        (TWO_NODES, 100, 100 << 20, "independent"),
    ],
)
def test_small_and_many_goes_together(nodes: list[int], runs: int, nbytes: int, way: str) -> None:
    made = transport(nodes=nodes)
    assert made.choose(NOTHING._replace(runs=runs, nbytes=nbytes)) == way
    assert made.statistics()["transport"] == way


@pytest.mark.parametrize(
    ("options", "way"),
    [
        ({"transport": "aggregate"}, "aggregate"),
        ({"transport": "collective"}, "collective"),
        ({"transport": "independent"}, "independent"),
        ({"hints": {"pnc_transport": "aggregate"}}, "aggregate"),
        ({"hints": {"romio_cb_write": "enable"}}, "collective"),
        ({"hints": {"romio_cb_write": "disable"}}, "independent"),
        ({"hints": {"romio_cb_write": "automatic"}}, "independent"),
        ({"hints": {"nc_num_aggrs_per_node": "2"}}, "aggregate"),
        ({"transport": "independent", "hints": {"romio_cb_write": "enable"}}, "independent"),
        ({"hints": {"romio_cb_write": "enable", "nc_num_aggrs_per_node": "2"}}, "collective"),
    ],
)
def test_a_way_that_is_asked_for_is_taken(options: dict[str, Any], way: str) -> None:
    made = transport(nodes=ONE_NODE, **options)
    agreed = NOTHING._replace(runs=3, nbytes=24, transport=transport_code(made.options))
    assert made.choose(agreed) == way


def test_a_driver_without_collective_calls_is_not_asked_for_them() -> None:
    made = transport(nodes=ONE_NODE, collective=False, transport="collective")
    assert made.choose(NOTHING._replace(runs=3, transport=transport_code(made.options))) == "independent"


def test_ordered_writes_are_each_rank_s_own() -> None:
    made = transport(nodes=ONE_NODE, ordered=True, transport="aggregate")
    assert made.choose(NOTHING._replace(runs=1 << 20, transport=transport_code(made.options))) == "independent"


@pytest.mark.parametrize(
    ("node", "wanted", "expected"),
    [
        ([0] * 4, {}, [0, 2]),
        ([0] * 4, {"per_node": 1}, [0]),
        ([0] * 4, {"per_node": 9}, [0, 1, 2, 3]),
        ([0, 0, 2, 2], {}, [0, 1, 2, 3]),
        ([0, 1, 0, 1], {"per_node": 1}, [0, 1]),
        ([0], {}, [0]),
        ([0] * 4 + [4] * 4, {}, [0, 2, 4, 6]),
        ([0] * 4 + [4] * 4, {"stripes": 6}, [0, 1, 2, 4, 5, 6]),
        ([0] * 4 + [4] * 4, {"in_all": 3}, [0, 2, 4]),
        ([0, 0, 2, 2, 4, 4], {"in_all": 2}, [0, 2]),
        ([0] * 4 + [4] * 4, {"in_all": 3, "per_node": 2}, [0, 2, 4]),
    ],
)
def test_ranks_that_write_for_others(node: list[int], wanted: dict[str, int], expected: list[int]) -> None:
    nodes = places(node)
    assert aggregators(nodes, Wanted(**wanted)) == expected
    assert nodes.single == (len(set(node)) == 1)


def test_a_plan_says_which_way_and_why() -> None:
    made = transport(nodes=ONE_NODE)
    told = made.foreseen(600, 4800)
    assert told[0].startswith("transport: aggregate: a rank has up to 600 runs, 8 bytes on average; ")
    assert told[0].endswith("more than 512 runs of less than 16384 bytes")
    assert told[1:] == ["aggregators: 2 of 4 ranks, on 1 node"]
    assert transport(nodes=TWO_NODES).foreseen(2, 16)[1] == "aggregators: 4 of 4 ranks, on 2 nodes"
    # Where the ranks are was not asked yet, and a plan waits for nobody.
    made._nodes = None
    one, several = made.foreseen(100, 800)
    assert one.startswith("transport on one node: independent: ")
    assert several.startswith("transport on several nodes: aggregate: ")
    assert "asked for" in transport(nodes=ONE_NODE, transport="collective").foreseen(1, 8)[0]
    assert "ordered" in transport(nodes=ONE_NODE, ordered=True, transport="aggregate").foreseen(1, 8)[0]
    assert (
        "no collective calls" in transport(nodes=ONE_NODE, collective=False, transport="collective").foreseen(1, 8)[0]
    )


def test_reads_are_chosen_as_writes_but_by_their_own_hint() -> None:
    made = transport(nodes=ONE_NODE, hints={"romio_cb_read": "enable"})
    codes = [transport_code(made.options, reads=reads) for reads in (True, False)]
    assert [made.choose_read(Weight(1, 600, 4800, code)) for code in codes] == ["collective", "aggregate"]
    assert made.choose_read(Weight(1, 600, 600 << 20, 0)) == "independent"
    told = made.statistics()["read_choice"]
    assert told["transport"] == "independent"
    assert "600 runs, 1048576 bytes" in told["why"]
    assert made.statistics()["write_choice"] is None
