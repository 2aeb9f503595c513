"""Which ranks share a node, of all ranks and of some."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.rank_places import Nodes


def places(nodes: list[int]) -> Nodes:
    """The places of ranks, each on the node that is given; each node has one core more than the one before."""
    numbers = {node: i for i, node in enumerate(dict.fromkeys(nodes))}
    starts = [i for i, node in enumerate(nodes) if not i or node != nodes[i - 1]]
    lowest = tuple(nodes.index(node) for node in numbers)
    cores = tuple(node + 1 for node in numbers)
    return Nodes(lowest, cores, tuple(starts), tuple(numbers[nodes[i]] for i in starts), len(nodes))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data())
def test_the_places_of_a_group_follow_from_those_of_all(nodes: list[int], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(range(len(nodes))), min_size=1, unique=True).map(sorted))
    found = places(nodes).among(chosen)
    assert found == places([nodes[rank] for rank in chosen])
    assert [found.ranks(found.of(i)) for i in range(len(chosen))] == [
        [j for j, other in enumerate(chosen) if nodes[other] == nodes[rank]] for rank in chosen
    ]
