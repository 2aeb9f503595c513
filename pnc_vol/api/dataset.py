"""`Dataset` is h5py's, over a session.

Knows: selections, the session's verbs. Does not know: how a request is carried out, headers, paths.

Rules
-----
1. ``ds[...] = x`` posts and returns; ``ds[...]`` is complete when it returns and needs no other rank, except inside
   ``with ds.collective:``.
2. What is read of a scalar is a numpy scalar (bytes for strings), as in h5py.
3. An empty dataset has neither shape nor elements: reading it gives `Empty`.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Iterator
from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api.dataset_plan import fill_of, say_instead
from pnc_vol.api.filters import Storage
from pnc_vol.api.ids import DatasetID, Handle, ObjectID
from pnc_vol.api.objects import stands_for
from pnc_vol.api.paths import text_of
from pnc_vol.api.posting import Posting, check_scalar, source, target
from pnc_vol.errors import ConversionError, OperationError, SelectionError, SelectionValueError, printable
from pnc_vol.late import late
from pnc_vol.mapping.dtypes import check_string_dtype
from pnc_vol.mapping.tree import DatasetNode

if TYPE_CHECKING:
    from pnc_vol.api import views
    from pnc_vol.api.dims import DimensionManager
    from pnc_vol.file.open_file import OpenFile
else:
    # few programs use conversions or fields
    views = late("pnc_vol.api.views")

__all__ = ["Dataset", "dataset_of"]

_new = object.__new__

Shape = tuple[int, ...]


@stands_for("dataset")
class Dataset(Storage, Posting, metaclass=ABCMeta):
    """A dataset of a file.

    Parameters
    ----------
    bind : DatasetID
        The `id` of another `Dataset`.
    readonly : bool
        Accepted as in h5py; the file's mode decides.

    Raises
    ------
    ValueError
        Not a `DatasetID`.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("example.nc", "w", driver="memory") as f:
    ...     ds = f.create_dataset("t", data=[[1, 2], [3, 4]])
    ...     ds[0] = 9
    ...     ds[:, 1].tolist()
    [9, 4]
    """

    _id: DatasetID

    def __init__(self, bind: ObjectID, *, readonly: bool = False) -> None:
        if not isinstance(bind, DatasetID):
            raise ValueError(f"{bind} is not a DatasetID")
        if bind.node.away is not None and type(bind) is DatasetID:
            from pnc_vol.api.virtual_data import ElsewhereID

            bind = ElsewhereID(bind.handle, bind.node)
        self._id = bind

    # ------------------------------------------------------------------------------------ what it is

    @property
    def shape(self) -> Shape:
        """Elements along each axis; None for an empty dataset. Assigning resizes."""
        # Type checkers are told what h5py's users rely on: an empty (null) dataset is rare, and asked for by `Empty`.
        return self._node.shape  # type: ignore[return-value]

    @shape.setter
    def shape(self, shape: Shape) -> None:
        self.resize(shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of one element, with h5py's metadata."""
        return self._node.element.dtype

    @property
    def ndim(self) -> int:
        """Number of axes; 0 for an empty dataset."""
        return len(self._node.shape or ())

    @property
    def size(self) -> int | None:
        """Number of elements; None for an empty dataset."""
        shape = self._node.shape
        return None if shape is None else prod(shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements in memory."""
        return (self.size or 0) * self.dtype.itemsize

    @property
    def maxshape(self) -> tuple[int | None, ...] | None:
        """How far each axis may grow; None stands for no limit."""
        node = self._node
        return node.shape if node.maxshape is None else node.maxshape

    @property
    def fillvalue(self) -> Any:
        """What unwritten elements read as; 0 unless it was given."""
        return fill_of(self._node)

    @property
    def dims(self) -> DimensionManager:
        """The axes: labels and scales."""
        from pnc_vol.api.dims import DimensionManager

        return DimensionManager(self)

    @property
    def is_scale(self) -> bool:
        """True if this dataset is a dimension scale."""
        return self._node.scale is not None

    def make_scale(self, name: str | bytes = "") -> None:
        """Make this dataset a dimension scale.

        Parameters
        ----------
        name : str
            The scale's name.

        Raises
        ------
        RuntimeError
            Scales are attached to this dataset: it cannot be one itself.

        Examples
        --------
        >>> with pnc_vol.File("scale.nc", "w") as f:
        ...     f["x"], f["t"] = [0.5, 1.5], [1, 2]
        ...     f["x"].make_scale("x")
        ...     f["t"].dims[0].attach_scale(f["x"])
        ...     f["t"].dims[0].keys()
        ['x']
        """
        text = text_of(name)
        session = self._id.check()
        with session.lock:
            session.check_open()
            self._id.handle.check_writable("make a scale")
            node = self._node
            if any(axis.scales for axis in node.axes):
                raise OperationError(f"{node.path!r} cannot be a scale: scales are attached to it; detach them first")
            node.scale = text
            node.tree.touch()

    # ----------------------------------------------------------------------------------- reading

    def __getitem__(self, args: Any, new_dtype: np.dtype[Any] | None = None) -> Any:
        """Read, by h5py's indexing rules; sees every earlier write of this process."""
        own = self._id
        if new_dtype is None and not own.handle.collective:
            session = own.check()
            disk = session.disk
            before = disk.version
            # What `reading` would do, in fewer steps.
            if before & 1:
                with session.lock:
                    if session.closed:
                        raise session.closed_error()
                    found = session.read_run(own.node, args)
            else:
                try:
                    found = session.read_run(own.node, args)
                    again = disk.version != before
                except Exception:
                    again = True
                if again:
                    found = session.reading(session.read_run, own.node, args)
            if found is not None:
                return found if found.ndim else found[()]
        return self._read(args, new_dtype)

    def _read(self, args: Any, dtype: np.dtype[Any] | None, fields: tuple[str, ...] = (), out: Any = None) -> Any:
        """Return what ``self[args]`` is, as `dtype`; `out`: an array that it may be read into, if it has the shape for
        it."""
        try:
            return self._read_selected(args, dtype, fields, out)
        except SelectionError as error:
            self._name_in(error)
            raise

    def _read_selected(self, args: Any, dtype: np.dtype[Any] | None, fields: tuple[str, ...], out: Any) -> Any:
        session = self._id.check()
        if self._id.node.away is None:
            array, whole = session.reading(self._elements, session, args, fields, out)
        else:
            # Without the lock: other files are opened, which may show elements of this one.
            array, whole = self._elements(session, args, fields, out)
        if whole or array is out:
            return array
        if dtype is not None:
            array = views.cast(array, dtype)
        if array.shape == () and (self._id.node.shape or (args is not Ellipsis and args != (Ellipsis,))):
            return array[()]
        return array

    def _elements(self, session: OpenFile, args: Any, fields: tuple[str, ...], out: Any) -> tuple[Any, bool]:
        """Return the selected elements, and whether they are just what the user gets."""
        node: DatasetNode = self._id.node
        shape = node.shape
        if node.element.kind == "composite":
            args, names = views.split_names(args)
            if names:
                return views.FieldsView(self, names[0] if len(names) == 1 else names)[args], True
        if not shape:
            early = check_scalar(args, node)
            if early is not None:
                return early, True
        collective = bool(self._id.handle.collective) and self._id.handle.collective.get(node.uid, 0) > 0
        with session.comm.errors_shared() if collective else nullcontext():
            selection = source(shape or (), args)
        if out is not None and out.shape != selection.result_shape:
            out = None
        if node.away is not None:
            found = self._id.read(selection)  # type: ignore[attr-defined]
            return found[list(fields)] if fields else found, False
        return session.read(node, selection, collective=collective, fields=fields, out=out), False

    def read_direct(self, dest: npt.NDArray[Any], source_sel: Any = None, dest_sel: Any = None) -> None:
        """Read into an array that is already there.

        Parameters
        ----------
        dest : ndarray
            Writable; of any strides, and of any type that the values convert to.
        source_sel, dest_sel : index, made by ``numpy.s_[...]``, optional
            What to read and where to put it; everything by default.

        Raises
        ------
        TypeError
            An empty dataset, an array that cannot be written to, or shapes that do not fit.

        Examples
        --------
        >>> with pnc_vol.File("direct.nc", "w") as f:
        ...     f["x"] = [1, 2, 3]
        ...     values = np.zeros(5)
        ...     f["x"].read_direct(values, np.s_[1:], np.s_[:2])
        >>> values.tolist()
        [2.0, 3.0, 0.0, 0.0, 0.0]
        """
        if self._id.check_node().shape is None:
            raise TypeError("Empty datasets have no numpy representation")
        views.read_into(self, dest, source_sel, dest_sel)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("Dataset.__array__ received copy=False but memory allocation cannot be avoided on read")
        if self.shape is None:
            raise TypeError("Empty datasets have no numpy representation")
        array = np.asarray(self[...])
        return array if dtype is None else views.as_type(array, np.dtype(dtype))

    def __iter__(self) -> Iterator[Any]:
        if self._node.shape == ():
            raise TypeError("Can't iterate over a scalar dataset")
        for at in range(self.len()):
            yield self[at]

    def __len__(self) -> int:
        length = self.len()
        if length > sys.maxsize:
            raise OverflowError("Value too big for Python's __len__; use Dataset.len() instead.")
        return length

    def len(self) -> int:
        """Return the number of elements along the first axis.

        Raises
        ------
        TypeError
            The dataset is scalar or empty.
        """
        shape = self._node.shape
        if not shape:
            raise TypeError(f"Attempt to take len() of {'an empty' if shape is None else 'scalar'} dataset")
        return shape[0]

    # ------------------------------------------------------------------------------- through a conversion

    def astype(self, dtype: npt.DTypeLike) -> Dataset | views.AsTypeView:
        """Return the dataset, read as another type.

        Parameters
        ----------
        dtype : dtype-like

        Raises
        ------
        TypeError
            No type; numpy's string type for a dataset that holds no strings; an array type for one of other arrays.

        Examples
        --------
        >>> with pnc_vol.File("astype.nc", "w") as f:
        ...     f["x"] = [1, 2]
        ...     f["x"].astype("f4")[:].dtype.name
        'float32'
        """
        wanted = np.dtype(dtype)
        stored = self._id.dtype
        if wanted == stored:
            return self
        if wanted.subdtype is not None and wanted.shape != stored.shape:
            raise ConversionError(f"Unable to read {stored!r} as {wanted!r}: arrays of {wanted.shape} are not stored")
        if wanted.kind == "T" and check_string_dtype(stored) is None:
            raise TypeError(f"dset.astype({wanted}) can only be used on datasets with an HDF5 string datatype")
        return views.AsTypeView(self, wanted)

    def asstr(self, encoding: str | None = None, errors: str = "strict") -> views.AsStrView:
        """Return the dataset, read as ``str``.

        Parameters
        ----------
        encoding, errors : as in ``bytes.decode``; the dataset's own encoding by default

        Raises
        ------
        TypeError
            The dataset holds no strings.

        Examples
        --------
        >>> with pnc_vol.File("asstr.nc", "w") as f:
        ...     f["s"] = "Kiel"
        ...     f["s"][()], f["s"].asstr()[()]
        (b'Kiel', 'Kiel')
        """
        info = check_string_dtype(self._id.dtype)
        if info is None:
            raise TypeError("dset.asstr() can only be used on datasets with an HDF5 string datatype")
        return views.AsStrView(self, encoding or info.encoding, errors)

    def fields(self, names: Any) -> views.FieldsView:
        """Return some fields of a compound dataset.

        Parameters
        ----------
        names : str or list of str
            One field, whose values are read, or several.

        Raises
        ------
        ValueError
            No compound, or no such field.

        Examples
        --------
        >>> with pnc_vol.File("fields.nc", "w") as f:
        ...     f["p"] = np.array([(1, 2.0)], dtype=[("x", "i4"), ("y", "f8")])
        ...     f["p"].fields("y")[:].tolist()
        [2.0]
        """
        return views.FieldsView(self, names)

    # ----------------------------------------------------------------------------------- writing

    def __setitem__(self, args: Any, value: Any) -> None:
        """Post a write, by h5py's indexing and broadcasting rules; the values are copied."""
        own = self._id
        session = own.check()
        # Without the lock where other files are written: another thread may write to this file through one of them.
        with session.lock if own.node.away is None else nullcontext():
            if session.closed:
                raise session.closed_error()
            node: DatasetNode = own.node
            if own.handle.writable and session.write_short(node, args, value):
                return
            try:
                self._write(session, node, args, value)
            except SelectionError as error:
                self._name_in(error)
                raise
            except ConversionError as error:
                say_instead(error, f"values in dataset {node.path!r}", value)
                raise

    def _write(self, session: OpenFile, node: DatasetNode, args: Any, value: Any) -> None:
        self._id.handle.check_writable("write data")
        fields: tuple[str, ...] = ()
        if node.element.kind == "composite":
            args, fields = views.split_names(args)
            if fields:
                views.fields_of(node.element.dtype, fields, writing=True)
            if node.away is not None:
                self._id.write(target(node.shape, args), value, fields)  # type: ignore[attr-defined]
                return
        session.write(node, target(node.shape, args), value, fields)

    def write_direct(self, source: npt.NDArray[Any], source_sel: Any = None, dest_sel: Any = None) -> None:
        """Post a write of (a part of) an array.

        Parameters
        ----------
        source : ndarray, of any strides
        source_sel, dest_sel : index, made by ``numpy.s_[...]``, optional
            What to take and where it goes; everything by default.

        Raises
        ------
        TypeError
            An empty dataset, no array, or shapes that do not fit.

        Examples
        --------
        >>> with pnc_vol.File("direct.nc", "w") as f:
        ...     x = f.create_dataset("x", (3,), "i4")
        ...     x.write_direct(np.arange(10), np.s_[4:6], np.s_[1:])
        ...     x[:].tolist()
        [0, 4, 5]
        """
        if self._id.check_node().shape is None:
            raise TypeError("Empty datasets cannot be written to")
        self[() if dest_sel is None else dest_sel] = views.taken_from(source, source_sel)

    def resize(self, size: Any, axis: int | None = None) -> None:
        """Change the length of axes, within `maxshape`.

        Every rank makes the same call. What is cut off reads as the fill value when the dataset grows again. The first
        axis, if it has no limit, grows by itself; for anything else the data are laid out anew.

        Parameters
        ----------
        size : tuple of int, or int together with `axis`
        axis : int, optional

        Raises
        ------
        TypeError
            The dataset cannot be resized, or `size` has another rank.
        ValueError
            There is no such axis.
        RuntimeError
            An axis would be longer than `maxshape` allows.

        Examples
        --------
        >>> with pnc_vol.File("resize.nc", "w") as f:
        ...     x = f.create_dataset("x", data=[[1, 2]], maxshape=(None, 2))
        ...     x.resize(2, axis=0)
        ...     x[:].tolist()
        [[1, 2], [0, 0]]
        """
        oid = self._id
        session = oid.check()
        with session.lock:
            if session.closed or session.forked:
                session.check_open()
            node = oid.node
            shape, limits = node.shape, node.maxshape
            if (
                axis == 0
                and type(size) is int
                and limits
                and limits[0] is None
                and shape
                and size > shape[0]
                and oid.handle.writable
                and node.element.kind != "composite"
            ):
                # More records, as a program adds them in each step, in few calls.
                session.add_records(node, size)
                return
            if node.away is not None:
                raise TypeError("Only chunked datasets can be resized; the data of this one are not in the file")
            if shape is None or limits is None:
                more = (
                    f": create it with maxshape={(None, *shape[1:])}; None is an axis without a limit" if shape else ""
                )
                raise TypeError(f"Unable to resize {node.path!r}: its shape {shape} is fixed{more}")
            new = _new_shape(shape, size, axis)
            if any(limit is not None and n > limit for n, limit in zip(new, limits, strict=True)):
                raise OperationError(f"Unable to resize {node.path!r} from {shape} to {new}: its maxshape is {limits}")
            self._id.handle.check_writable("change a dataset's dimensions")
            if new != shape:
                session.resize(node, new)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.dtype.names or ())

    def __repr__(self) -> str:
        if not self:
            return "<Closed HDF5 dataset>"
        node = self._node
        name = f'"{node.name}"' if node.parent is not None else "(anonymous)"
        return printable(f'<HDF5 dataset {name}: shape {node.shape}, type "{node.element.dtype.str}">')


def _new_shape(shape: Shape, size: Any, axis: int | None) -> Shape:
    if axis is not None:
        if not 0 <= axis < len(shape):
            raise SelectionValueError(f"Invalid axis (0 to {len(shape) - 1} allowed)")
        if isinstance(size, (tuple, list)):
            raise TypeError("Argument must be a single int if axis is specified")
        new = (*shape[:axis], int(size), *shape[axis + 1 :])
    else:
        new = tuple(int(n) for n in size)
    if len(new) != len(shape):
        raise TypeError(f"New shape length ({len(new)}) must match dataset rank ({len(shape)})")
    if any(n < 0 for n in new):
        raise OverflowError(f"size={new}: a dimension cannot be negative")
    return new


def dataset_of(handle: Handle, node: DatasetNode) -> Dataset:
    """Return the dataset of a node, made in few steps: most objects are used once."""
    made, oid = _new(Dataset), _new(DatasetID)
    made._id = oid
    oid.handle, oid.node = handle, node
    return made
