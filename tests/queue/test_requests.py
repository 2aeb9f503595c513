"""Handles of posted requests: what they say, their order, and what becomes of them on failure."""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import AlreadyDoneError, ClosedFileError, FlushError
from pnc_vol.testing.faults import HookedSystem

LEAST_LENT = 1 << 20
"""Bytes of a post that is not copied; more than `pnc_vol.file.post` asks for does no harm."""


class Forbidden(HookedSystem):
    """Writes that touch given bytes of files fail while there are such bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []
        self.denied = 0

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in ("pwrite", "pwritev"):
            nbytes = sum(memoryview(b).nbytes for b in args[1]) if name == "pwritev" else memoryview(args[1]).nbytes
            for low, high in self.ranges:
                if args[2] < high and low < args[2] + nbytes:
                    self.denied += 1
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().call(name, args, kwargs)


@pytest.fixture
def f(path: pathlib.Path) -> Iterator[pnc_vol.File]:
    with pnc_vol.File(path, "w") as file:
        yield file


def begin(file: pnc_vol.File, name: str) -> int:
    return next(var.begin for var in file.id.handle.session.disk.header.vars if var.name == name)


def deny(file: pnc_vol.File, system: Forbidden, name: str, first: int, last: int) -> None:
    """Forbid elements `first` to `last` of a dataset."""
    itemsize = file[name].dtype.itemsize
    at = begin(file, name)
    system.ranges.append((at + first * itemsize, at + last * itemsize))


# -------------------------------------------------------------------------------------------- handles


def test_a_write_is_pending_until_the_flush(f: pnc_vol.File) -> None:
    x = f.create_dataset("x", (10,), "f8")
    request = x.iput(slice(2, 5), [1, 2, 3])
    assert request.status == "pending"
    assert not request.test()
    assert request.nbytes == 24
    assert request.array is None
    assert f.requests == {request.id: request}
    assert x[2:5].tolist() == [1, 2, 3]
    f.flush()
    assert request.status == "done"
    assert request.test()
    assert f.requests == {}
    assert request.wait() is None


def test_numbers_increase(f: pnc_vol.File) -> None:
    x = f.create_dataset("x", (10,), "f8")
    ids = [x.iput(0, 1).id, x.iget(0).id, x.iput_many([[0]], [[2]], [1, 2]).id, x.iget_many([[0]], [[2]]).id]
    assert ids == sorted(set(ids))
    assert sorted(f.requests) == ids


def test_a_request_of_nothing_is_done(f: pnc_vol.File) -> None:
    x = f.create_dataset("x", (10,), "f8")
    assert x.iput(slice(0, 0), []).status == "done"
    read = x.iget(slice(3, 3))
    assert read.status == "done"
    assert read.array.shape == (0,)
    assert f.requests == {}


def test_waiting_for_one_write(f: pnc_vol.File) -> None:
    x = f.create_dataset("x", (10,), "f8")
    r = f.create_dataset("r", (2,), "i4", maxshape=(None,))
    one = x.iput(0, 5)
    other = r.iput(1, 6)
    one.wait()
    assert one.status == "done"
    assert other.wait() is None
    assert other.status == "done"


def test_wait_all(f: pnc_vol.File) -> None:
    x = f.create_dataset("x", (10,), "f8")
    requests = [x.iput(i, i) for i in range(5)] + [x.iget(slice(0, 5))]
    f.wait_all(requests[-1:])
    assert requests[-1].array.tolist() == [0, 1, 2, 3, 4]
    f.wait_all()
    assert all(request.status == "done" for request in requests)


def test_a_posted_read_holds_the_values_of_its_place_in_program_order(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w", buffer_size=64 << 10) as f:
        x = f.create_dataset("x", (4000,), "f8")
        reads = []
        for i in range(8):
            x[:] = i
            reads.append(x.iget(slice(None)))
            if i == 3:
                f.flush()
            if i == 5:
                # A drain comes between.
                f.create_dataset("big", data=np.ones(30_000))
        # Posts through a drain completed some of them already.
        f.flush()
        for i, read in enumerate(reads):
            assert read.status == "done"
            assert (read.array == i).all()


def test_a_read_into_an_array_of_ones_own(f: pnc_vol.File) -> None:
    x = f.create_dataset("x", data=np.arange(12).reshape(3, 4))
    out = np.empty((2, 4), "i8")
    request = x.iget(slice(1, 3), out)
    x[:] = 0
    assert request.wait() is out
    assert out.tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
    for wrong in (np.empty((3, 4)), [0] * 8, np.broadcast_to(np.int64(0), (2, 4))):
        with pytest.raises(TypeError, match="out="):
            x.iget(slice(1, 3), wrong)


def test_many_subarrays_in_one_request(f: pnc_vol.File) -> None:
    x = f.create_dataset("x", (6, 6), "i4")
    starts, counts = [[0, 0], [2, 3], [5, 0]], [[2, 2], [1, 3], [1, 6]]
    request = x.iput_many(starts, counts, np.arange(13))
    wanted = np.zeros((6, 6), int)
    wanted[:2, :2] = [[0, 1], [2, 3]]
    wanted[2, 3:] = [4, 5, 6]
    wanted[5] = range(7, 13)
    assert x[:].tolist() == wanted.tolist()
    assert x.iget_many(starts, counts).wait().tolist() == list(range(13))
    assert len(f.requests) == 1
    f.flush()
    assert request.status == "done"
    assert x.iget_many(starts, counts).wait().tolist() == list(range(13))


@pytest.mark.parametrize("uncopied", [1 << 40, 1])
@pytest.mark.parametrize("layout", ["canonical", "blob", "hdf5blob"])
@pytest.mark.parametrize("records", [False, True])
def test_subarrays_that_overlap_and_exceed_the_budget(
    path: pathlib.Path, layout: str, records: bool, uncopied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of records each element is a run of its own; one long subarray beside many short ones says nothing of these."""
    monkeypatch.setattr("pnc_vol.file.post.LEAST_LENT", uncopied)
    starts = [*range(0, 10_000, 500), *range(0, 9000, 2)]
    counts = [9000] * 20 + [1] * 4500
    values, expected, first = np.arange(sum(counts)), np.zeros(20000, int), 0
    for start, count in zip(starts, counts, strict=True):
        expected[start : start + count] = values[first : first + count]
        first += count
    with pnc_vol.File(path, "w", buffer_size=64 << 10, layout=layout) as f:
        x = f.create_dataset("x", (20000,), "i4", maxshape=(None,) if records else None)
        x.iput_many(np.reshape(starts, (-1, 1)), np.reshape(counts, (-1, 1)), values)
        assert x[:].tolist() == expected.tolist()
    with pnc_vol.File(path) as f:
        assert f["x"][:].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("(2,)i4", np.arange(6).reshape(3, 2)),
        ("(2, 2)f8", np.arange(12.0).reshape(3, 2, 2)),
        ("V3", np.array([b"abc", b"def", b"ghi"], "V3")),
        ("g", np.arange(3, dtype="g") / 3),
        ("?", np.array([True, False, True])),
        ("c16", np.array([1j, 2, 3])),
        ("f2", np.array([1, 2, 3], "f2")),
        ("S2", np.array([b"a", b"bc", b""])),
        (pnc_vol.enum_dtype({"A": 0, "B": 1}, "i2"), np.array([1, 0, 1], "i2")),
        (pnc_vol.string_dtype(), np.array([b"a", b"longer", b""], object)),
    ],
    ids=str,
)
def test_every_kind_of_element_can_be_posted_by_name(path: pathlib.Path, dtype: Any, values: Any) -> None:
    with pnc_vol.File(path, "w") as f:
        x, many, assigned = (f.create_dataset(name, (3,), dtype) for name in ("x", "many", "assigned"))
        assigned[...] = values
        x.iput(slice(0, 3), values)
        many.iput_many([[2], [0]], [[1], [2]], values[[2, 0, 1]])
        f.flush()
        assert x[...].tolist() == many[...].tolist() == assigned[...].tolist()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("i4", 7), ("S2", b"a"), (pnc_vol.string_dtype(), "text"), (pnc_vol.vlen_dtype("i4"), [1, 2])],
    ids=str,
)
def test_a_posted_read_of_one_element_gives_an_array_that_holds_it(path: pathlib.Path, dtype: Any, value: Any) -> None:
    with pnc_vol.File(path, "w") as f:
        x = f.create_dataset("x", (3,), dtype)
        x[1] = value
        for _ in range(2):
            for index in (1, 2, (np.int64(2),)):
                found = x.iget(index).wait()
                assert isinstance(found, np.ndarray)
                assert found.shape == ()
                np.testing.assert_array_equal(found[()], x[index])
            f.flush()


def test_an_uncopied_array_is_taken_at_the_flush(f: pnc_vol.File) -> None:
    n = LEAST_LENT // 8
    x = f.create_dataset("x", (2 * n,), "f8")
    uncopied, copied = np.full(n, 1.0), np.full(n, 2.0)
    x.iput(slice(0, n), uncopied)
    x[n:] = copied
    copied[:] = uncopied[:] = 3
    f.flush()
    assert (x[:n] == 3).all()
    assert (x[n:] == 2).all()


@pytest.mark.parametrize("order", ["<f8", ">f8"])
def test_uncopied_and_copied_posts_keep_their_order(f: pnc_vol.File, order: str) -> None:
    n = LEAST_LENT // 4
    x = f.create_dataset("x", (n,), "f8")
    r = f.create_dataset("r", (64, n // 64), "f8", maxshape=(None, n // 64))
    model = np.zeros(n)
    for i in range(6):
        values = (np.arange(n, dtype=order) + i) * 7
        for ds in (x, r):
            target = values if ds is x else values.reshape(r.shape)
            ds.iput(Ellipsis if i % 2 else slice(0, len(ds)), target)
        model[:] = values
        x[i * 10 : i * 10 + 5] = -i
        r[0, i * 10 : i * 10 + 5] = -i
        model[i * 10 : i * 10 + 5] = -i
        assert (x[:] == model).all()
        assert (r[...].ravel() == model).all()
    f.flush()
    assert (x[:] == model).all()
    assert (r[...].ravel() == model).all()


# ---------------------------------------------------------------------------------------- cancelling


def test_cancelling(f: pnc_vol.File) -> None:
    x = f.create_dataset("x", data=[9, 9, 9, 9])
    f.flush()
    first, second = x.iput(slice(0, 3), [1, 1, 1]), x.iput(slice(1, 4), [2, 2, 2])
    read = x.iget(slice(None))
    second.cancel()
    assert second.status == "cancelled"
    assert second.test()
    read.cancel()
    assert list(f.requests) == [first.id]
    assert x[:].tolist() == [1, 1, 1, 9]
    second.cancel()
    f.flush()
    assert x[:].tolist() == [1, 1, 1, 9]
    with pytest.raises(AlreadyDoneError, match=f"request {first.id} was carried out already"):
        first.cancel()
    with pytest.raises(ValueError):
        f.cancel([first])


def test_cancelling_all(f: pnc_vol.File) -> None:
    x = f.create_dataset("x", (4,), "i4")
    x[0] = 7
    requests = [x.iput(i, 5) for i in range(4)] + [x.iget(0)]
    f.cancel()
    assert {request.status for request in requests} == {"cancelled"}
    assert f.requests == {}
    assert x[:].tolist() == [0, 0, 0, 0]
    f.flush()
    assert x[:].tolist() == [0, 0, 0, 0]


def test_cancelling_what_was_not_copied_or_was_spilled(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w", buffer_size=64 << 10) as f:
        r = f.create_dataset("r", (100, 50), "f8", maxshape=(None, 50), fillvalue=1)
        s = f.create_dataset("s", (LEAST_LENT // 8,), "f8")
        spilled = [r.iput(i, np.full(50, i)) for i in range(100)]
        for i in range(0, 100, 3):
            r[i] = -i
        uncopied = s.iput(slice(None), np.ones(len(s)))
        assert f.statistics()["bytes_spilled"] > 0
        for request in (*spilled[::2], uncopied):
            request.cancel()
        wanted = np.array([-i if i % 3 == 0 else i if i % 2 else 1 for i in range(100)])
        assert (r[:] == wanted[:, None]).all()
        f.flush()
        assert (r[:] == wanted[:, None]).all()
        assert not s[:].any()
        assert all(request.status == "done" for request in spilled[1::2])


def test_after_the_close(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        x = f.create_dataset("x", (4,), "i4")
        write, read = x.iput(0, 5), x.iget(0)
    assert write.status == read.status == "done"
    assert read.array == 5
    with pytest.raises(ClosedFileError):
        write.cancel()


def test_posted_reads_of_a_file_open_for_reading(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.arange(10)
    with pnc_vol.File(path) as f:
        one, two = f["x"].iget(slice(0, 4)), f["x"].iget(9)
        assert one.wait().tolist() == [0, 1, 2, 3]
        assert two.status == "pending"
    assert two.status == "done"
    assert two.array == 9


# ------------------------------------------------------------------------------------------ failures


def test_the_middle_one_of_three_fails(path: pathlib.Path) -> None:
    system = Forbidden()
    with pnc_vol.File(path, "w", system=system) as f:
        x = f.create_dataset("x", (30,), "f8")
        f.flush()
        deny(f, system, "x", 10, 20)
        requests = [x.iput(slice(i, i + 10), np.full(10, i + 1.0)) for i in (0, 10, 20)]
        with pytest.raises(FlushError, match=r"1 request\(s\) failed: /x \(10 elements from element 10\)") as caught:
            f.flush()
        assert [request.status for request in requests] == ["done", "failed", "done"]
        assert isinstance(requests[1].error, OSError)
        assert f.requests == {requests[1].id: requests[1]}
        (failure,) = caught.value.errors
        assert (failure.request, failure.rank, failure.variable) == (requests[1].id, 0, "/x")
        assert failure.errno == caught.value.errno == errno.EIO
        assert x[:].tolist() == [1.0] * 10 + [11.0] * 10 + [21.0] * 10
        with pnc_vol.File(path) as other:
            assert other["x"][:].tolist() == [1.0] * 10 + [0.0] * 10 + [21.0] * 10
        system.ranges.clear()
        f.flush()
        assert requests[1].status == "done"
        assert requests[1].error is None
    with pnc_vol.File(path) as f:
        assert f["x"][:].tolist() == [1.0] * 10 + [11.0] * 10 + [21.0] * 10


def test_every_failure_is_listed(path: pathlib.Path) -> None:
    system = Forbidden()
    with pnc_vol.File(path, "w", system=system) as f:
        names = ["a", "b", "c", "d"]
        for name in names:
            f.create_dataset(name, (10,), "i4")
        f.flush()
        requests = {(name, i): f[name].iput(slice(i, i + 5), [i] * 5) for name in names for i in (0, 5)}
        deny(f, system, "a", 0, 1)
        deny(f, system, "c", 9, 10)
        deny(f, system, "d", 4, 6)
        with pytest.raises(FlushError) as caught:
            f.flush()
        failed = {("a", 0), ("c", 5), ("d", 0), ("d", 5)}
        assert {failure.request for failure in caught.value.errors} == {requests[key].id for key in failed}
        assert {key for key, request in requests.items() if request.status == "failed"} == failed
        system.ranges.clear()
        f.flush()
        for name in names:
            assert f[name][:].tolist() == [0] * 5 + [5] * 5


@pytest.mark.parametrize("uncopied", [False, True])
def test_order_holds_when_the_earlier_of_two_that_overlap_succeeds_later(path: pathlib.Path, uncopied: bool) -> None:
    n = LEAST_LENT // 8 if uncopied else 8
    system = Forbidden()
    with pnc_vol.File(path, "w", system=system) as f:
        x = f.create_dataset("x", (n + 4,), "f8")
        f.flush()
        deny(f, system, "x", 0, 1)
        first = x.iput(slice(0, n), np.full(n, 1.0))
        second = x.iput(slice(4, n + 4), np.full(n, 2.0))
        with pytest.raises(FlushError) as caught:
            f.flush()
        assert [failure.request for failure in caught.value.errors] == [first.id]
        third = x.iput(slice(n, n + 2), [3.0, 3.0])
        system.ranges.clear()
        f.flush()
        assert {request.status for request in (first, second, third)} == {"done"}
        wanted = np.array([1.0] * 4 + [2.0] * n)
        wanted[n : n + 2] = 3
        np.testing.assert_array_equal(x[:], wanted)
    with pnc_vol.File(path) as f:
        np.testing.assert_array_equal(f["x"][:], wanted)


def test_the_record_count_does_not_count_what_failed(path: pathlib.Path) -> None:
    system = Forbidden()
    with pnc_vol.File(path, "w", system=system) as f:
        r = f.create_dataset("r", (2, 4), "f8", maxshape=(None, 4))
        s = f.create_dataset("s", (2,), "i4", maxshape=(None,), fillvalue=-1)
        r[:], s[:] = 1, 1
        f.flush()
        at, step = begin(f, "r"), 4 * 8 + 4
        system.ranges.append((at + 5 * step, at + 5 * step + 8))
        r.resize(8, axis=0)
        requests = [r.iput(i, np.full(4, i)) for i in range(2, 8)]
        s.resize(7, axis=0)
        s[2:] = 2
        with pytest.raises(FlushError) as caught:
            f.flush()
        assert [failure.request for failure in caught.value.errors] == [requests[3].id]
        with pnc_vol.File(path) as other:
            assert other.numrecs == 5
            assert other["r"][:, 0].tolist() == [1, 1, 2, 3, 4]
            assert other["s"][:].tolist() == [1, 1, 2, 2, 2]
        assert r[:, 0].tolist() == [1, 1, 2, 3, 4, 5, 6, 7]
        system.ranges.clear()
        f.flush()
    with pnc_vol.File(path) as f:
        assert f["r"][:, 0].tolist() == [1, 1, 2, 3, 4, 5, 6, 7]
        assert f["s"][:].tolist() == [1, 1, 2, 2, 2, 2, 2]


def test_a_drain_that_fails_loses_nothing(path: pathlib.Path) -> None:
    system = Forbidden()
    with pnc_vol.File(path, "w", system=system, buffer_size=64 << 10) as f:
        x = f.create_dataset("x", (100, 500), "f8")
        f.flush()
        deny(f, system, "x", 20 * 500, 21 * 500)
        posted = 0
        with pytest.raises(FlushError, match="queue is full"):
            for i in range(100):
                x[i] = i
                posted += 1
        assert system.denied
        assert 20 < posted < 100
        system.ranges.clear()
        for i in range(posted, 100):
            x[i] = i
        assert (x[:] == np.arange(100)[:, None]).all()
    with pnc_vol.File(path) as f:
        assert (f["x"][:] == np.arange(100)[:, None]).all()


def test_cancelling_what_failed_lets_the_file_close(path: pathlib.Path) -> None:
    system = Forbidden()
    with pnc_vol.File(path, "w", system=system) as f:
        x = f.create_dataset("x", (10,), "f8")
        f.flush()
        deny(f, system, "x", 3, 4)
        bad, good = x.iput(slice(0, 5), np.ones(5)), x.iput(slice(5, 10), np.ones(5))
        with pytest.raises(FlushError):
            f.flush()
        bad.cancel()
        assert (bad.status, good.status) == ("cancelled", "done")
    with pnc_vol.File(path) as f:
        assert f["x"][5:].tolist() == [1] * 5


def test_a_close_that_fails_says_so_and_closes(path: pathlib.Path) -> None:
    system = Forbidden()
    f = pnc_vol.File(path, "w", system=system)
    x = f.create_dataset("x", (10,), "f8")
    f.flush()
    deny(f, system, "x", 3, 4)
    x[:] = 1
    with pytest.raises(FlushError) as caught:
        f.close()
    assert caught.value.errors[0].variable == "/x"
    assert not f
    f.close()
    with pnc_vol.File(path) as f:
        assert f["x"].shape == (10,)


def test_reads_that_fail_fail_alone(path: pathlib.Path) -> None:
    class Unreadable(HookedSystem):
        broken = False

        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if self.broken and name in ("pread_into", "preadv"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().call(name, args, kwargs)

    system = Unreadable()
    with pnc_vol.File(path, "w", system=system) as f:
        x = f.create_dataset("x", data=np.arange(10))
        f.flush()
        read = x.iget(slice(2, 4))
        system.broken = True
        with pytest.raises(OSError, match="Input/output error"):
            x[0]
        with pytest.raises(OSError, match="Input/output error"):
            read.wait()
        assert read.status == "failed"
        system.broken = False
        assert read.wait().tolist() == [2, 3]
        assert read.status == "done"


def test_a_new_variable_where_a_deleted_one_was_reads_as_fill(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f["kept"] = np.full(300, 7.0)
        f["gone"] = np.full(5000, 7.0)
        f.create_dataset("r", (3,), "i4", maxshape=(None,))[:] = 1
        f.flush()
        del f["gone"]
    for name in ("new", "newer"):
        with pnc_vol.File(path, "r+", buffer_size=1 << 16) as f:
            f.create_dataset(name, (300,), "f8")
            f.create_dataset(f"{name} pinned", (300,), "f8")[3] = 5
            f[f"{name} pinned"].iput((4,), 6).wait()
            f["kept"].iput((1,), 8).wait()
            assert not f[name][:].any()
    with pnc_vol.File(path) as f:
        for name in ("new", "newer"):
            assert not f[name][:].any()
            assert f[f"{name} pinned"][:6].tolist() == [0, 0, 0, 5, 6, 0]
            assert not f[f"{name} pinned"][6:].any()
        assert f["r"][:].tolist() == [1, 1, 1]


@pytest.mark.parametrize("where", ["placed", "placed early", "not placed", "twice"])
@pytest.mark.parametrize("log", [False, True])
def test_a_request_that_went_to_the_file_when_it_was_posted_is_done(path: pathlib.Path, where: str, log: bool) -> None:
    """One that is larger than the queue: it can be cancelled only if nothing of it is in the file."""
    options = {"burst_buf": True, "burst_buf_capacity": 20_000} if log else {"buffer_size": 64 << 10}
    with pnc_vol.File(path, "w", **options) as f:
        # New variables with records have no place before the flush.
        records = {"maxshape": (None,)} if where == "not placed" else {}
        x = f.create_dataset("x", (40_000,), "f8", fillvalue=-1.0, **records)
        if where in ("placed", "twice"):
            f.flush()
        if where == "twice":
            # The same elements twice cannot be written in any order, and so go by the queue.
            request = x.iput_many([[0], [0]], [[20_000], [20_000]], np.ones(40_000))
        else:
            request = x.iput(np.s_[:], np.ones(40_000))
        assert request.nbytes == 320_000
        if where == "not placed" and not log:
            assert request.status == "pending"
            request.cancel()
        else:
            assert request.status == "done"
            assert request.id not in f.requests
            with pytest.raises(AlreadyDoneError):
                request.cancel()
        wanted = 1 if request.status == "done" else -1
        assert x[0] == x[19_999] == wanted
    with pnc_vol.File(path) as f:
        assert f["x"][0] == f["x"][19_999] == wanted


def test_one_run_of_more_than_half_the_budget_waits_for_the_flush(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w", buffer_size=1 << 20) as f:
        x = f.create_dataset("x", (100_000,), "f8")
        f.flush()
        x[:] = np.arange(100_000)
        assert "bytes_drained" not in f.statistics()
        assert "drains" not in f.statistics()
        f.flush()
        assert x[99_999] == 99_999
