"""E3SM-IO's map files: what is read, who writes what, and files that contradict themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.convert.map_files import Map, read_maps
from pnc_vol.testing.mpi import missing, run_mpi

DATA = Path(__file__).parents[2] / "../shared/data/e3sm"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="E3SM-IO's maps are not there (../shared/data/e3sm)")
PROGRAM = Path(__file__).parents[1] / "mpi/ranks_map_files.py"


def cells(one: Map, ranks: int, *, compat: bool = False) -> list[int]:
    """Every cell that some rank writes, element by element."""
    found = []
    for rank in range(ranks):
        for at, n in zip(*one.of_rank(rank, ranks, compat=compat), strict=True):
            found += range(at, at + n)
    return found


@needs_data
@pytest.mark.parametrize("suffix", ["nc", "h5"])
@pytest.mark.parametrize(
    ("case", "covered"),
    [
        ("f", [866, 866, 72 * 866]),
        ("g", [285, 879, 28500, 87900, 59300, 285 * 101]),
        ("i", [5663, 84945, 56630, 50967, 96271]),
    ],
)
def test_published_maps(case: str, covered: list[int], suffix: str) -> None:
    maps = read_maps(DATA / f"map_{case}_case_16p.{suffix}")
    for ranks in (1, 3, 16, 20):
        found = [cells(one, ranks) for one in maps]
        assert [len(one) for one in found] == [len(set(one)) for one in found] == covered
    for one in maps:
        assert one.of_rank(19, 20).start.size == 0
        for rank in range(3):
            at, n = one.of_rank(rank, 3)
            assert (at // one.dims[-1] == (at + n - 1) // one.dims[-1]).all(), "a run crosses the end of a row"
            assert (np.diff(at) > 0).all()
            joins = at[1:] == (at + n)[:-1]
            assert (at[1:][joins] % one.dims[-1] == 0).all(), "neighbours that are not joined"


@needs_data
def test_the_mistake_of_the_c_program_can_be_had() -> None:
    maps = read_maps(DATA / "map_i_case_16p.nc")
    wanted = [10428, 146693, 96826, 88529, 165577]
    assert [len(cells(one, 16, compat=True)) for one in maps] == wanted
    whole = pnc_vol.read_decompositions(DATA / "map_i_case_16p.nc", compat=True)
    # one rank has one list for each process, and reads all of them from the wrong places
    assert [int(one.counts.sum()) for one in whole] == wanted


def write(path: Path, **changed: object) -> Path:
    """A file of one map over (2, 4): process 0 has 0 to 2 and fills 3, process 1 has 4 to 6."""
    told = {"nreqs": [2, 2], "fill_starts": [1, 2], "offsets": [0, 3, 6, 4], "lengths": [3, 1, 1, 2], "dims": [2, 4]}
    with pnc_vol.File(path, "w") as f:
        for name, values in {**told, **changed}.items():
            if values is None:
                continue
            array = np.array(values)
            array = array.astype("i4") if array.dtype.kind == "i" else array
            if name == "dims":
                f.attrs["D1.dims"] = array
            else:
                f[f"D1.{name}"] = array
    return path


def test_what_a_file_says(tmp_path: Path) -> None:
    path = write(tmp_path / "map.nc")
    (one,) = pnc_vol.read_decompositions(path)
    assert one.shape == (2, 4)
    assert (one.starts.ravel().tolist(), one.counts.ravel().tolist()) == ([0, 4], [3, 3])
    with pnc_vol.File(tmp_path / "data.nc", "w") as f:
        f.create_dataset("x", (3, 2, 4), "f4", fillvalue=-1).iput((1, one), np.arange(6))
        f.flush()
        assert f["x"][1].tolist() == [[0, 1, 2, -1], [3, 4, 5, -1]]
    # an old file does not know segments for fill values
    (old,) = pnc_vol.read_decompositions(write(tmp_path / "old.nc", fill_starts=None))
    assert old.counts.ravel().tolist() == [4, 3]


@given(counts=st.lists(st.integers(0, 4), max_size=9), ranks=st.integers(1, 12), data=st.data())
def test_processes_are_dealt_in_contiguous_parts_that_differ_by_one(counts, ranks: int, data) -> None:
    nreqs = np.array(counts, np.int32)
    fill = np.array([data.draw(st.integers(0, n)) for n in counts], np.int32)
    total = int(nreqs.sum())
    one = Map((max(1, total),), nreqs, fill, np.arange(total, dtype=np.int32), np.ones(total, np.int32))
    begins = np.cumsum([0, *counts])
    wanted = [begins[p] + i for p in range(len(counts)) for i in range(fill[p])]
    shares = [one.share(rank, ranks) for rank in range(ranks)]
    assert [at for offsets, _ in shares for at in offsets] == wanted
    sizes = [len(counts) // ranks + (rank < len(counts) % ranks) for rank in range(ranks)]
    first = np.cumsum([0, *sizes])
    assert [len(offsets) for offsets, _ in shares] == [int(fill[a:b].sum()) for a, b in zip(first, first[1:])]  # noqa: B905, RUF007


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"nreqs": None}, "there is no variable 'D1.nreqs'"),
        ({"offsets": None}, "there is no variable 'D1.offsets'"),
        ({"dims": None}, "there is no attribute 'D1.dims'"),
        ({"dims": [2, 0]}, "'D1.dims'"),
        ({"dims": [b"2", b""]}, "'D1.dims'"),
        ({"dims": [2.0, 4.0]}, "'D1.dims'"),
        ({"nreqs": [2, 3]}, "'D1.nreqs' counts 5 runs; there are 4"),
        ({"nreqs": [5, -1]}, "'D1.nreqs' counts 4 runs"),
        ({"lengths": [3, 1, 1]}, "there are 4 offsets and 3 lengths"),
        ({"fill_starts": [3, 2]}, "'D1.fill_starts'"),
        ({"fill_starts": [2]}, "'D1.fill_starts'"),
        ({"offsets": [0, 3, 6, 7]}, r"'D1.offsets\[3\]' is 7, and 2 elements"),
        ({"offsets": [0, -1, 6, 4]}, r"'D1.offsets\[1\]' is -1"),
        ({"lengths": [3, 1, -1, 2]}, r"'D1.offsets\[2\]' is 6, and -1 elements"),
        ({"offsets": [0.5, 3, 6, 4]}, "integers with one"),
        ({"offsets": [[0, 3], [6, 4]]}, "2 axes"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    path = write(tmp_path / "map.nc", **changed)
    with pytest.raises(pnc_vol.FormatError, match=said) as caught:
        pnc_vol.read_decompositions(path)
    assert str(caught.value).startswith(str(path))
    assert caught.value.field.startswith("D1.")


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("ranks", [1, 3])
def test_one_rank_reads_and_all_get_their_part_or_the_error(tmp_path: Path, ranks: int) -> None:
    told = run_mpi(ranks, PROGRAM, write(tmp_path / "map.nc")).stdout
    assert told.count("as dealt") == ranks
    assert told.count("no such file: FileNotFoundError") == ranks
