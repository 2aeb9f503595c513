"""Hint files: the grammar with places of errors, which entry counts, precedence, the same on all ranks."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.cache.hints import HINTED
from pnc_vol.errors import HintsFileError, PncVolWarning
from pnc_vol.settings.hint_files import HintFile, _parsed
from pnc_vol.settings.options import hint_checks, hints_file
from pnc_vol.testing.mpi import missing, run_mpi

# as the document of E10 has it
SAMPLE = """{
    “Guardnames”: “test_file”,
    “File”: [{
        “Path”: “/scratch/deep47/test_file”,
        “Type”: “MPI”,
        “cb_buffer_size”: “4194304”,
        “ind_wr_buffer_size”: “524288”,
        “romio_no_indep_rw”: “true”,
        “e10_cache”: “enable”,
        “e10_cache_path”: “/scratch”
    }]
}"""


def made(content: Any) -> HintFile:
    text = content if isinstance(content, str) else json.dumps(content)
    return HintFile(text.encode(), "h.json", {**hint_checks(), **HINTED.checks})


def entries(*paths: str) -> list[dict[str, str]]:
    return [{"Path": path, "Type": "MPI", "cb_nodes": path} for path in paths]


def taken(content: Any, path: str) -> str:
    return made(content).match(path).hints.get("cb_nodes", "")


def test_exact_file_before_exact_directory_before_the_longest() -> None:
    content = {"File": entries("/a/b/out.nc", "/a/b/out", "ut.nc"), "Directory": entries("/a/b", "/a", "/a/b/c/d")}
    assert taken(content, "/a/b/out.nc") == "/a/b/out.nc"
    assert taken(content, "/a/b/out.nc.1") == "/a/b", "the directory is exact, the file a prefix only"
    assert taken(content, "/x/ut.nc") == "ut.nc"
    assert taken(content, "/x/out.nc") == "ut.nc"
    assert taken(content, "/a/x/out.nc") == "ut.nc", "a suffix of 5 characters against a directory of 2"
    assert taken(content, "/a/x/y") == "/a"
    assert taken(content, "/a/b/c/d/e/out.nc") == "/a/b/c/d"
    assert taken(content, "/ab/y") == ""


def test_names_and_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = {"File": entries("out", "sub/out"), "Directory": entries("dir/")}
    assert taken(content, "sub/out") == f"{'sub/out'}"
    assert taken(content, "sub/out.1") == "sub/out"
    assert taken(content, "other/out") == "out"
    assert taken(content, "/far/out.3") == "out"
    assert taken(content, "/far/fallout") == "out"
    assert taken(content, "dir/x") == "dir/"
    assert taken(content, "dir/sub/x") == "dir/"
    assert taken(content, "directory") == ""


def test_the_first_of_equal_ones_counts() -> None:
    assert made({"File": [{"Path": "a", "cb_nodes": 1}, {"Path": "a", "cb_nodes": 2}]}).match("a").hints == {
        "cb_nodes": "1"
    }


def test_guardnames_are_prefixes_of_the_base_name() -> None:
    content = made({"Guardnames": "chk, plot_,"})
    guarded = [content.match(name).guarded for name in ("chk", "/a/chk_0001.nc", "plot_1", "plot", "a_chk", "chk/x")]
    assert guarded == [True, True, True, False, False, False]
    assert not made({"Guardnames": ""}).match("x").guarded


def test_values_are_texts() -> None:
    found = made({"File": [{"Path": "x", "cb_nodes": 64, "romio_cb_write": "enable", "pnc_ordered": True}]}).match("x")
    assert found.hints == {"cb_nodes": "64", "romio_cb_write": "enable", "pnc_ordered": "true"}


def test_the_sample_of_the_document_is_read_with_a_warning() -> None:
    with pytest.warns(PncVolWarning, match="h.json: typographic quotes"):
        found = made(SAMPLE).match("/scratch/deep47/test_file_0001")
    assert found.guarded
    assert found.hints["e10_cache_path"] == "/scratch"
    assert found.places["cb_buffer_size"] == "h.json, line 6"


def test_a_path_may_have_typographic_quotes() -> None:
    assert taken({"File": entries("“x”")}, "“x”") == "“x”"


WRONG = {
    "": (1, 1, "Expecting value"),
    "[]": (1, 1, "an object {...} is needed here, not a list"),
    '{"Guardnames": "a"': (1, 19, "',' or '}' is needed"),
    '{"Guardnames": "a",}': (1, 20, "a key in double quotes"),
    '{"Guardnames" "a"}': (1, 15, "':' is needed behind the key 'Guardnames'"),
    '{\n  "Guardname": "a"}': (2, 3, "'Guardname' is no key of a hint file; did you mean 'Guardnames'?"),
    '{"Guardnames": ["a"]}': (1, 16, "a text with names, separated by commas is needed here, not a list"),
    '{"Guardnames": "a"} x': (1, 21, "the text goes on behind its end: 'x'"),
    '{"Guardnames": "a",\n "Guardnames": "b"}': (2, 2, "the key 'Guardnames' is there twice"),
    '{"File": {"Path": "x"}}': (1, 10, "a list of entries"),
    '{"File": ["x"]}': (1, 11, "an entry {...} is needed here, not the text 'x'"),
    '{"File": [{"cb_nodes": "1"}]}': (1, 11, "needs a 'Path'"),
    '{"File": [{"Path": 3}]}': (1, 20, "a path as text is needed here, not the number 3"),
    '{"File": [{"Path": ""}]}': (1, 20, "'Path' is empty"),
    '{"File": [{"Path": "x", "Type": "POSIX"}]}': (1, 33, "'Type' is 'POSIX'; only 'MPI' is known"),
    '{"File": [{"Path": "x",\n"cb_node": "1"}]}': (2, 1, "did you mean 'cb_nodes'?"),
    '{"File": [{"Path": "x", "cb_nodes": [1]}]}': (1, 37, "not a list"),
    '{"File": [{"Path": "x", "cb_nodes": null}]}': (1, 37, "not null"),
    '{"File": [{"Path": "x", "cb_nodes": 1.5}]}': (1, 37, "not the number 1.5"),
    '{"File": [{"Path": "x", "pnc_buffer_size": "many"}]}': (1, 44, "a number of bytes"),
    '{"File": [' + "[" * 50: (1, 18, "more than 8 levels"),
    '{"Guardnames": "a\n"}': (1, 18, "Invalid control character"),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named_with_its_place(text: str) -> None:
    line, column, what = WRONG[text]
    with pytest.raises(HintsFileError) as caught:
        made(text)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    assert str(caught.value).startswith(f"h.json, line {line}, column {column}: ")
    assert what in str(caught.value)


def test_bytes_that_are_no_text_are_named() -> None:
    with pytest.raises(HintsFileError, match=r"line 2, column 4: byte 5 is not UTF-8"):
        HintFile(b"{\n  \t\xff}"[:2] + b'  "\xff"}', "h.json", {})


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def plain(node: Any) -> Any:
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    return [plain(value) for value in node.value] if isinstance(node.value, list) else node.value


def refuse(at: int, what: str) -> Any:
    raise ValueError(f"{at}: {what}")


texts = st.builds(json.dumps, values, indent=st.sampled_from([None, 2])) | st.text('{}[]",: \n1ae\\', max_size=20)


@given(texts)
def test_the_parser_reads_and_refuses_what_the_standard_library_does(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError):
            _parsed(text, refuse)
        return
    try:
        assert plain(_parsed(text, refuse)) == expected
    except ValueError as error:
        # what it does not take, on purpose
        assert "there twice" in str(error) or "levels" in str(error)  # noqa: PT017


# -------------------------------------------------------------------------------------------------- files


def test_which_file_is_named() -> None:
    both = {"PNC_VOL_HINTS_FILE": "ours", "MPI_HINTS_CONFIG": "theirs"}
    assert hints_file(None, {}) == ""
    assert hints_file("given", both) == "ours"
    assert hints_file(Path("given"), {"MPI_HINTS_CONFIG": "theirs"}) == "given"
    assert hints_file(None, {"MPI_HINTS_CONFIG": "theirs"}) == "theirs"


def test_the_program_wins_over_the_file_and_sources_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hints = {"nc_var_align_size": 512, "nc_record_align_size": 64, "pnc_buffer_size": 1 << 20, "pnc_locking": "false"}
    hints |= {"pnc_ordered": True, "pnc_driver": "trace | posix"}
    (tmp_path / "h.json").write_text(json.dumps({"Directory": [{"Path": ".", **hints}]}, indent=1))
    monkeypatch.setenv("PNC_VOL_HINTS", "nc_record_align_size=32")
    with pnc_vol.File(
        "x.nc", "w", hints_file="h.json", hints={"nc_var_align_size": 16}, buffer_size=1 << 17
    ) as f:  # fmt: skip
        shown, options = f.hints, f._id.handle.session.options
        assert "trace.write_calls" in f.statistics()["driver"] or f.statistics()["driver"]
    assert (options.var_align, options.record_align, options.buffer_size, options.ordered) == (16, 32, 1 << 17, True)
    assert options.locking is False
    assert options.driver == "trace | posix"
    assert {name: shown.sources[name] for name in hints} == {
        "nc_var_align_size": "hints=",
        "nc_record_align_size": "PNC_VOL_HINTS",
        "pnc_buffer_size": "argument buffer_size",
        "pnc_locking": "h.json, line 8",
        "pnc_ordered": "h.json, line 9",
        "pnc_driver": "h.json, line 10",
    }
    assert shown.sources["nc_header_reserve"] == "default"
    assert shown["pnc_ordered"] == "true"


def test_a_wrong_file_opens_nothing(tmp_path: Path) -> None:
    target = tmp_path / "x.nc"
    for text in ('{"File": 3}', '{"File": [{"Path": "other", "nc_var_align_size": "wide"}]}'):
        (tmp_path / "h.json").write_text(text)
        with pytest.raises(HintsFileError, match=r"h\.json, line 1"):
            pnc_vol.File(target, "w", hints_file=tmp_path / "h.json")
    with pytest.raises(FileNotFoundError, match="none"):
        pnc_vol.File(target, "w", hints_file=tmp_path / "none.json")
    assert not target.exists()


def test_a_file_in_memory_and_an_empty_name_read_no_hint_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PNC_VOL_HINTS_FILE", "/there/is/none.json")
    with pytest.raises(FileNotFoundError):
        pnc_vol.File("x.nc", "w")
    with pnc_vol.File.in_memory() as f:
        f["x"] = 1
    monkeypatch.setenv("PNC_VOL_HINTS_FILE", "")
    with pnc_vol.File("x", "w") as f:
        assert f.hints.sources["pnc_buffer_size"] == "default"


def outcomes(folder: str) -> None:
    """What each rank is told of each kind of file; all of it is printed."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD

    def outcome(text: str, **kwds: Any) -> Any:
        if comm.rank == 0:
            Path(folder, "h.json").write_text(text)
        comm.Barrier()
        told: list[Any]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with pnc_vol.File(f"{folder}/x.nc", "w", comm=comm, **{"hints_file": f"{folder}/h.json", **kwds}) as f:
                    told = [f.hints["nc_var_align_size"], f.hints.sources["nc_var_align_size"].partition(", ")[2]]
                    told.append(f._id.handle.session.comm.timeout)
            except Exception as error:
                told = [type(error).__name__, str(error).replace(folder, ""), getattr(error, "line", 0)]
            told.append(len(caught))
        return comm.gather(told)

    hints = {"Path": folder, "nc_var_align_size": 512, "pnc_collective_timeout": 77}
    entry = json.dumps({"Directory": [hints]})
    all_of = [outcome(text) for text in (entry, entry.replace("512", '"wide"'), "{", entry.replace('"', "\u201c"))]
    all_of.append(outcome(entry, hints_file=f"{folder}/{comm.rank}.json"))
    all_of.append(outcome(entry, hints_file=f"{folder}/none.json"))
    all_of.append(outcome(entry, hints={"pnc_locking": "maybe"} if comm.rank == 1 else {}))
    if comm.rank == 0:
        print(json.dumps(all_of))


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_all_ranks_have_the_same(tmp_path: Path) -> None:
    told = json.loads(run_mpi(3, __file__, tmp_path).stdout)
    good, wide, short, quotes, different, absent, other = told
    assert good == [["512", "line 1", 77.0, 0]] * 3
    assert wide[0][:3] == ["HintsFileError", wide[0][1], 1]
    assert "nc_var_align_size" in wide[0][1]
    assert short[0][0] == "HintsFileError"
    assert [one[:3] for one in quotes] == [["512", "line 1", 77.0]] * 3
    assert sum(one[3] for one in quotes) == 1
    assert different[0][0] == "CollectiveMismatchError"
    assert absent[0][0] == "FileNotFoundError"
    assert other[0][0] == "ValueError"
    for same in (wide, short, different, absent, other):
        assert [one[:3] for one in same] == [same[0][:3]] * 3
    assert os.path.exists(tmp_path / "x.nc")


if __name__ == "__main__":
    outcomes(sys.argv[1])
