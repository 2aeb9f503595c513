"""Headers of subfiles: those of E3SM-IO's own files byte by byte, and back; any other header and back."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.errors import DefinitionError, FormatError
from pnc_vol.format.decode import Decoded, decode
from pnc_vol.format.encode import encode
from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.format.placing import Alignment, place
from pnc_vol.format.sizes import inner_bytes
from pnc_vol.interop.map_files import read_maps
from pnc_vol.layout.blob.described import described, is_blob_set
from pnc_vol.layout.blob.header import physical_header
from pnc_vol.layout.blob.maps import MapSizes, SubfileMap, content, from_content

DATA = Path(__file__).parents[3] / "../shared/data/e3sm"
needs_data = pytest.mark.skipif(
    not (DATA / "reference").exists(), reason="files of E3SM-IO are not there (../shared/data/e3sm/reference)"
)
RANKS, NODES = 16, 2
INTS = {"i": 4, "j": 10}


def reference(name: str) -> tuple[bytes, Decoded]:
    raw = gzip.decompress((DATA / f"reference/{name}.gz").read_bytes())
    return raw, decode(raw, file_size=len(raw))


def f_maps(node: int, canonical: Header) -> list[SubfileMap]:
    """What the C program put into the subfile of a node: ranks were dealt to nodes in turn."""
    names = [dim.name for dim in canonical.dims]
    ids = [tuple(names.index(name) for name in dims) for dims in (["ncol"], ["ncol"], ["lev", "ncol"])]
    maps = read_maps(DATA / "map_f_case_16p.nc")
    return [
        SubfileMap(one.dims, of, tuple(one.of_rank(rank, RANKS) for rank in range(node, RANKS, NODES)))
        for one, of in zip(maps, ids, strict=True)
    ]


def assigned_in(header: Header) -> list[int]:
    """The map of each canonical variable, as the C program's file says."""
    found = []
    for var in header.vars[15:]:
        attr = next((attr for attr in var.attrs if attr.name == "decomposition_ID"), None)
        found.append(int.from_bytes(attr.data, "big") if attr else 0)
    return found


@needs_data
@pytest.mark.parametrize("node", range(NODES))
def test_the_header_of_the_f_case_is_that_of_the_c_program_byte_for_byte(node: int) -> None:
    raw, found = reference(f"f_pnc_blob_h1.nc.{node:04d}")
    _, canonical = reference("f_pnc_canonical_h1.nc")
    maps = f_maps(node, canonical.header)
    made = physical_header(canonical.header, maps, assigned_in(found.header), nblobs=8, nprocs=RANKS, subfiles=NODES)
    assert encode(place(made, Alignment(element_align=4))) == raw[: found.nbytes]


@needs_data
@pytest.mark.parametrize("node", range(NODES))
def test_the_map_variables_of_the_f_case_are_those_of_the_c_program_where_it_wrote_them(node: int) -> None:
    raw, found = reference(f"f_pnc_blob_h1.nc.{node:04d}")
    maps = f_maps(node, described(found.header, "x").canonical)
    for i, mine in enumerate(content(maps)):
        var = found.header.vars[i]
        theirs = np.frombuffer(raw, np.uint8, mine.size, var.begin)
        assert mine.size == inner_bytes(found.header, var)
        written = np.ones(mine.size, bool)
        if i % 5 > 2:
            # the rest of a row is whatever was in the file
            one = maps[i // 5]
            written = np.repeat(np.arange(one.max_nreqs) < one.nreqs[:, None], 4)
        np.testing.assert_array_equal(mine[written], theirs[written])
        assert not mine[~written].any()


@needs_data
@pytest.mark.parametrize("node", range(NODES))
def test_the_c_programs_subfiles_give_its_canonical_header_and_its_maps(node: int) -> None:
    raw, found = reference(f"f_pnc_blob_h1.nc.{node:04d}")
    _, canonical = reference("f_pnc_canonical_h1.nc")
    assert is_blob_set(found.header)
    assert not is_blob_set(canonical.header)
    told = described(found.header, "h1.nc.0000")
    assert told.canonical == canonical.header.with_begins([-1] * len(canonical.header.vars))
    assert (told.nblobs, told.nprocs, told.subfiles) == (8, RANKS, NODES)
    assert told.assigned == tuple(assigned_in(found.header))
    assert told.variables == tuple(range(15, len(found.header.vars)))
    for described_map, wanted in zip(told.maps, f_maps(node, told.canonical), strict=True):
        columns = []
        for var in found.header.vars[described_map.first : described_map.first + 5]:
            shape = [found.header.dims[i].size for i in var.dims]
            code = ">i4" if var.type == INTS["i"] else ">i8"
            columns.append(np.frombuffer(raw, code, int(np.prod(shape)), var.begin).reshape(shape))
        read = from_content(described_map, columns, "x: D", [np.zeros(described_map.nblobs, np.int64)] * 5)
        assert read.dims == wanted.dims
        for mine, theirs in zip(read.blobs, wanted.blobs, strict=True):
            np.testing.assert_array_equal(mine, theirs)


# ---------------------------------------------------------------------------------------- any other header


@st.composite
def any_set(draw):
    """A canonical header, maps of its dimensions, and which variable has which."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    dims = [Dim(f"d{i}", n) for i, n in enumerate(lengths)]
    record = draw(st.integers(-1, len(dims)))
    if record >= 0:
        dims.insert(record, Dim("time", 0))
    fixed = [i for i, dim in enumerate(dims) if dim.size]
    nblobs = draw(st.integers(1, 4))
    maps = []
    for _ in range(draw(st.integers(0, 3))):
        ids = tuple(draw(st.lists(st.sampled_from(fixed), min_size=1, max_size=3)))
        blobs = nblobs if draw(st.booleans()) else draw(st.integers(1, 4))
        sizes = (blobs, draw(st.integers(1, 9)), draw(st.integers(1, 5)))
        maps.append(MapSizes(tuple(dims[i].size for i in ids), ids, *sizes))
    variables, assigned, supplements = [], [], {}
    for i in range(draw(st.integers(0, 6))):
        k = draw(st.integers(0, len(maps)))
        # the last ones are of one element
        ids = (*(maps[k - 1].dimids if k else ()), *draw(st.lists(st.sampled_from(fixed), max_size=2)))
        if record >= 0 and draw(st.booleans()):
            ids = (record, *ids)
        attrs = (Attr("units", 2, 1, b"m"), Attr("global_dimids_", 4, 1, b"abcd"))[: draw(st.integers(0, 2))]
        if k and draw(st.booleans()):
            supplements[i] = 3 + k
        name = draw(st.sampled_from([f"v{i}", f"v{i}" + "x" * 250, f"v{max(0, i - 1)}.supplement.{i}"]))
        variables.append(Var(name, ids, attrs, draw(st.integers(1, 11))))
        assigned.append(k)
    attrs = (Attr("title", 2, 4, b"text"),)[: draw(st.integers(0, 1))]
    return Header(5, draw(st.integers(0, 3)), tuple(dims), attrs, tuple(variables)), maps, assigned, nblobs, supplements


@settings(max_examples=300, deadline=None)
@given(any_set())
def test_any_header_comes_back_from_its_subfile(case) -> None:
    canonical, maps, assigned, nblobs, supplements = case
    made = physical_header(canonical, maps, assigned, nblobs=nblobs, nprocs=7, subfiles=3, supplements=supplements)
    raw = encode(place(made))
    read = decode(raw, file_size=1 << 40).header
    told = described(read, "x")
    assert told.canonical == canonical
    assert [MapSizes(*one[:5]) for one in told.maps] == maps
    assert (list(told.assigned), told.nblobs, told.nprocs, told.subfiles) == (assigned, nblobs, 7, 3)
    assert [read.vars[i].name for i in told.variables] == [var.name for var in canonical.vars]
    assert set(told.supplements) == set(supplements)
    for i, at in told.supplements.items():
        assert read.vars[at].type == canonical.vars[i].type
        dim = next(d for d in read.vars[at].dims if read.dims[d].name == f"D{assigned[i]}.supplement")
        assert read.dims[dim].size == supplements[i]
    # and again
    again = physical_header(
        told.canonical, told.maps, told.assigned, nblobs=nblobs, nprocs=7, subfiles=3, supplements=supplements
    )
    assert again == made
    assert sum(dim.size == 0 for dim in made.dims) == sum(dim.size == 0 for dim in canonical.dims)


def test_a_map_has_the_dimensions_of_its_variables_when_their_numbers_change() -> None:
    made_with = MapSizes((6,), (0,), 2, 5, 3)
    dims = (Dim("time", 0), Dim("x", 6))
    for variables, assigned, ids in (((Var("t", (0, 1), (), 6),), [1], (1,)), ((), [], ())):
        header = Header(5, dims=dims, vars=variables)
        told = described(physical_header(header, [made_with], assigned, nblobs=2, nprocs=4, subfiles=2), "x")
        assert told.maps[0].dimids == ids
        assert told.canonical == header


@pytest.mark.parametrize(
    "changed",
    [
        Header(5, dims=(Dim("nblobs", 3), Dim("x", 6)), vars=(Var("t", (1,), (), 6),)),
        Header(5, dims=(Dim("D1.nelems", 3), Dim("x", 6)), vars=(Var("t", (1,), (), 6),)),
        Header(5, dims=(Dim("y", 3), Dim("x", 6)), vars=(Var("D1.offsets", (1,), (), 6),)),
        Header(5, dims=(Dim("y", 3), Dim("x", 6)), vars=(Var("t", (1,), (Attr("decomposition_ID", 2, 0, b""),), 6),)),
        Header(
            5,
            dims=(Dim("y", 3), Dim("x", 6)),
            attrs=(Attr("num_subfiles", 2, 0, b""),),
            vars=(Var("t", (1,), (), 6),),
        ),
        Header(5, dims=(Dim("y", 3), Dim("x", 7)), vars=(Var("t", (1,), (), 6),)),
    ],
)
def test_names_of_the_subfile_and_shapes_that_are_not_the_maps_are_refused(changed: Header) -> None:
    with pytest.raises(DefinitionError, match=r"The (blob layout needs|map D1)"):
        physical_header(changed, [MapSizes((6,), (1,), 2, 5, 3)], [1], nblobs=2, nprocs=4, subfiles=2)


def small() -> Header:
    header = Header(5, dims=(Dim("time", 0), Dim("x", 6)), vars=(Var("t", (0, 1), (), 6), Var("s", (), (), 4)))
    return physical_header(
        header, [MapSizes((6,), (1,), 2, 5, 3)], [1, 0], nblobs=2, nprocs=4, subfiles=2, supplements={0: 1}
    )


def replaced(header: Header, *, dims=None, attrs=None, vars=None) -> Header:
    return Header(5, 0, dims or header.dims, attrs or header.attrs, vars or header.vars)


def with_attr(header: Header, at: int, name: str, value: bytes, code: int = 4) -> Header:
    var = header.vars[at]
    attr = Attr(name, code, max(1, len(value) // 4), value)
    made = Var(var.name, var.dims, tuple(attr if old.name == name else old for old in var.attrs), var.type)
    return replaced(header, vars=(*header.vars[:at], made, *header.vars[at + 1 :]))


def int4(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def without_dim(header: Header, name: str) -> Header:
    return replaced(header, dims=tuple(Dim("other", dim.size) if dim.name == name else dim for dim in header.dims))


def with_global(header: Header, name: str, value: bytes, code: int = 4) -> Header:
    attrs = [Attr(name, code, 1, value) if attr.name == name else attr for attr in header.attrs]
    return replaced(header, attrs=tuple(attrs))


def with_var(header: Header, at: int, **parts) -> Header:
    return replaced(header, vars=(*header.vars[:at], header.vars[at]._replace(**parts), *header.vars[at + 1 :]))


DAMAGES = {
    "attribute 'num_subfiles'": lambda h: replaced(h, attrs=h.attrs[:2]),
    "attribute 'num_decompositions'": lambda h: with_global(h, "num_decompositions", int4(4)),
    "attribute 'num_decompositions' ": lambda h: with_global(h, "num_decompositions", int4(-1)),
    "attribute 'num_subfiles' ": lambda h: with_global(h, "num_subfiles", int4(0)),
    "attribute 'global_nprocs'": lambda h: with_global(h, "global_nprocs", b"x", 2),
    "dimension 'nblobs'": lambda h: without_dim(h, "nblobs"),
    "dimension 'D1.nelems'": lambda h: without_dim(h, "D1.nelems"),
    "dimension 'D1.max_nreqs'": lambda h: without_dim(h, "D1.max_nreqs"),
    "dimension 'D1.supplement'": lambda h: without_dim(h, "D1.supplement"),
    "variable 2": lambda h: with_var(h, 2, name="other"),
    "the shape of the variable 'D1.offsets'": lambda h: with_var(h, 3, dims=(2,)),
    "the type of the variable 'D1.lengths'": lambda h: with_var(h, 4, type=6),
    "attribute 'global_dimids' of 'D1.nreqs'": lambda h: with_attr(h, 0, "global_dimids", int4(2)),
    "attribute 'global_dimids' of 'D1.nreqs' ": lambda h: with_attr(h, 0, "global_dimids", int4(0)),
    "attribute 'global_dimids' of 't'": lambda h: with_attr(h, 5, "global_dimids", int4(-1)),
    "attribute 'global_dimids' of 't' ": lambda h: with_attr(h, 5, "global_dimids", int4(0)),
    "attribute 'decomposition_ID' of 't'": lambda h: with_attr(h, 5, "decomposition_ID", int4(2)),
    "attribute 'decomposition_ID' of 't' ": lambda h: with_attr(h, 5, "decomposition_ID", int4(1) + int4(1)),
    "the shape of the variable 't'": lambda h: with_var(h, 5, dims=(3,)),
    "the shape of the variable 's'": lambda h: with_var(h, 6, dims=(3,)),
    "attribute 'supplement_of' of 't.supplement'": lambda h: with_attr(h, 7, "supplement_of", int4(1)),
    "attribute 'supplement_of' of 't.supplement' ": lambda h: with_var(h, 7, type=5),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_header_that_contradicts_itself_is_refused_and_the_object_is_named(what: str) -> None:
    described(small(), "out.nc.0001")
    with pytest.raises(FormatError) as caught:
        described(DAMAGES[what](small()), "out.nc.0001")
    assert str(caught.value).startswith("out.nc.0001: ")
    assert caught.value.field == what.strip()
