"""``iput`` and ``iget`` post by name, one subarray or many; collective reads are here, too.

Knows: selections, the session's verbs. Does not know: when a request is carried out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from pnc_vol.api.ids import DatasetID
from pnc_vol.api.objects import HLObject
from pnc_vol.errors import ConversionError, SelectionError, SelectionTypeError, SelectionValueError
from pnc_vol.late import late
from pnc_vol.mapping.dtypes import Empty
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.request import Request

if TYPE_CHECKING:
    from pnc_vol.extents import decomposition
    from pnc_vol.extents.model import Selection
else:
    decomposition = late("pnc_vol.extents.decomposition")

__all__ = ["Posting", "check_scalar", "source", "target"]

Shape = tuple[int, ...]


def has_text(args: Any) -> bool:
    """Return whether there are field names in an index."""
    return any(isinstance(arg, str) for arg in (args if isinstance(args, tuple) else (args,)))


def source(shape: Shape | None, args: Any) -> Selection:
    """Return the selection of a read.

    Raises
    ------
    SelectionError
        As `select`; field names and empty datasets are told in h5py's words.
    """
    if shape is None:
        raise SelectionValueError("Empty datasets cannot be sliced")
    return _selected(shape, args, SelectionValueError("Field names only allowed for compound types"))


def target(shape: Shape | None, args: Any) -> Selection:
    """Return the selection of a write.

    Raises
    ------
    SelectionError
        As `select`.
    ConversionError
        The dataset is empty.
    """
    if shape is None:
        raise ConversionError("Empty datasets cannot be written to; delete it and create one with a shape")
    for_text = SelectionTypeError("Illegal slicing argument (not a compound dataset)")
    if not shape and has_text(args):
        raise for_text
    return _selected(shape, args, for_text)


def _selected(shape: Shape, args: Any, for_text: Exception) -> Selection:
    """Do as `select` does, with the rarer kinds of index of h5py; text among them raises `for_text`."""
    # most programs write and read by simple indices, for which there are short ways
    from pnc_vol.extents.selection import select

    try:
        return select(shape, args)
    except SelectionTypeError:
        from pnc_vol.api.regions import other_selection

        found = other_selection(shape, args)
        if found is not None:
            return found
        if has_text(args):
            raise for_text from None
        raise


def check_scalar(args: Any, node: DatasetNode) -> Any:
    """Return what reading an empty dataset gives; None for a scalar that is read whole.

    Raises
    ------
    ValueError
        An index into something that has no axes.
    """
    parts = args if isinstance(args, tuple) else (args,)
    if all(part is Ellipsis for part in parts) and len(parts) < 2:
        return Empty(node.element.dtype) if node.shape is None else None
    if has_text(args):
        raise SelectionValueError("Field names only allowed for compound types")
    if node.shape is None:
        raise SelectionValueError("Empty datasets cannot be sliced")
    raise SelectionValueError("Illegal slicing argument for scalar dataspace")


class Posting(HLObject):
    """The part of `Dataset` that h5py does not have."""

    _id: DatasetID

    def _name_in(self, error: SelectionError) -> None:
        """Say in an error which dataset the index was for."""
        if not error.named:
            error.named, node = True, self._id.node
            error.args = (f"{error} (dataset {node.path!r}, shape {node.shape})", *error.args[1:])

    @property
    def collective(self) -> contextlib.AbstractContextManager[None]:
        """Inside ``with ds.collective:`` every read of this dataset is collective: all ranks make it together."""
        return self._collective()

    @contextlib.contextmanager
    def _collective(self) -> Iterator[None]:
        self._id.check()
        depths, uid = self._id.handle.collective, self._id.node.uid
        depths[uid] = depths.get(uid, 0) + 1
        try:
            yield
        finally:
            depths[uid] -= 1
            if not depths[uid]:
                del depths[uid]

    def iput(self, args: Any, value: Any) -> Request:
        """Post a write without a copy where that is possible.

        Parameters
        ----------
        args : index, as between the brackets of ``ds[...]``, or a `Decomposition`
            ``(i, decomposition)`` means record `i` of a dataset with one axis more.
        value : array-like
            Must not change before the request is complete.

        Returns
        -------
        Request

        Raises
        ------
        ValueError, IndexError, TypeError
            An index that does not fit the dataset, or values that do not fit the index or the type.
        OSError
            The file is open for reading.

        Examples
        --------
        >>> with pnc_vol.File("iput.nc", "w") as f:
        ...     x = f.create_dataset("x", (100,), "f8")
        ...     requests = [x.iput(slice(i, i + 10), np.full(10, i)) for i in range(0, 100, 10)]
        ...     f.wait_all()
        ...     requests[0].status, x[95].item()
        ('done', 90.0)
        """
        own = self._id
        session = own.check()
        with session.lock:
            if session.closed:
                raise session.closed_error()
            node = own.node
            if own.handle.writable:
                request = session.iput_short(node, args, value)
                if request is not None:
                    return request
            own.handle.check_writable("write data")
            try:
                parts = decomposition.Decomposition.of_index(node.shape or (), args)
                return session.iput(node, parts or target(node.shape, args), value)
            except SelectionError as error:
                self._name_in(error)
                raise

    def iget(self, args: Any, out: npt.NDArray[Any] | None = None) -> Request:
        """Post a read.

        Parameters
        ----------
        args : index, as between the brackets of ``ds[...]``, or a `Decomposition`
        out : ndarray of the selection's shape, optional
            Filled when the request is complete.

        Returns
        -------
        Request
            Its `array` holds the values once it is done; of one element, it has no axes, and ``array[()]`` is the
            element.

        Raises
        ------
        ValueError, IndexError, TypeError
            An index that does not fit the dataset, or an array that does not fit the index.

        Examples
        --------
        >>> with pnc_vol.File("iget.nc", "w") as f:
        ...     x = f.create_dataset("x", data=[1, 2, 3])
        ...     request = x.iget(slice(1, 3))
        ...     request.wait().tolist()
        [2, 3]
        """
        own = self._id
        session = own.check()
        with session.lock:
            if session.closed:
                raise session.closed_error()
            node = own.node
            request = session.posted.iget_run(session, node, args, out)
            if request is not None:
                return request
            try:
                parts = decomposition.Decomposition.of_index(node.shape or (), args)
                return session.iget(node, parts or source(node.shape, args), out)
            except SelectionError as error:
                self._name_in(error)
                raise

    def iput_many(self, starts: npt.ArrayLike, counts: npt.ArrayLike, values: Any) -> Request:
        """Post a write of many subarrays as one request (PnetCDF's varn).

        Parameters
        ----------
        starts, counts : int[n, ndim]
            First index and number of elements along each axis, for each subarray.
        values : array-like
            The elements of all subarrays, one subarray after another.

        Returns
        -------
        Request

        Raises
        ------
        ValueError, IndexError, TypeError
            Subarrays outside the dataset, or values that are not as many as their elements.
        OSError
            The file is open for reading.

        Examples
        --------
        >>> with pnc_vol.File("varn.nc", "w") as f:
        ...     x = f.create_dataset("x", (4, 4), "i4")
        ...     x.iput_many([[0, 0], [2, 1]], [[1, 2], [1, 3]], [1, 2, 3, 4, 5]).wait()
        ...     x[2].tolist()
        [0, 3, 4, 5]
        """
        session = self._id.check()
        with session.lock:
            session.check_open()
            self._id.handle.check_writable("write data")
            try:
                return session.iput_many(self._id.node, starts, counts, values)
            except SelectionError as error:
                self._name_in(error)
                raise

    def iget_many(self, starts: npt.ArrayLike, counts: npt.ArrayLike, out: npt.NDArray[Any] | None = None) -> Request:
        """Post a read of many subarrays as one request (PnetCDF's varn).

        Parameters
        ----------
        starts, counts : int[n, ndim]
        out : ndarray of as many elements, optional

        Returns
        -------
        Request
            Its `array` holds the elements of all subarrays, one subarray after another.

        Raises
        ------
        ValueError, IndexError, TypeError
            Subarrays outside the dataset, or an array of another size.

        Examples
        --------
        >>> with pnc_vol.File("varn.nc", "w") as f:
        ...     x = f.create_dataset("x", data=np.arange(16).reshape(4, 4))
        ...     x.iget_many([[0, 0], [2, 1]], [[1, 2], [1, 3]]).wait().tolist()
        [0, 1, 9, 10, 11]
        """
        session = self._id.check()
        with session.lock:
            session.check_open()
            try:
                return session.iget_many(self._id.node, starts, counts, out)
            except SelectionError as error:
                self._name_in(error)
                raise

    def flush(self) -> None:
        """Flush the file of this dataset, as `File.flush`; collective if several ranks share it.

        Raises
        ------
        FlushError
            Requests failed; see `File.flush`.

        Examples
        --------
        >>> with pnc_vol.File("flush.nc", "w") as f:
        ...     x = f.create_dataset("x", data=[1, 2])
        ...     x.flush()
        ...     len(f.requests)
        0
        """
        self._id.flush()

    def refresh(self) -> None:
        """Read again what another process may have changed: definitions and the record count (collective, as opening).

        The whole file is read anew: records, shapes, attributes and objects; what was deleted is false.
        A handle that writes, or reads beside one of this process that does, sees everything already.

        Raises
        ------
        OSError
            The file is gone or cannot be read.
        ValueError
            The dataset is not in the file any more.

        Examples
        --------
        >>> with pnc_vol.File("grows.nc", "w") as f:
        ...     x = f.create_dataset("x", (0,), "i4", maxshape=(None,))
        >>> reader = pnc_vol.File("grows.nc")
        >>> seen = reader["x"]
        >>> seen.refresh()
        >>> seen.shape
        (0,)
        >>> reader.close()
        """
        self._id.refresh()
