"""convert, ls, check, run and demo as their users meet them."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from other_process import fresh
from run_command import verbs

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi


@pytest.fixture
def small(tmp_path):
    with h5py.File(tmp_path / "small.h5", "w") as f:
        f.attrs["title"] = "small"
        f["g/x"] = np.arange(6, dtype="i4").reshape(2, 3)
        f["g/x"].attrs["units"] = "m"
        f.create_dataset("t", data=np.arange(4.0), maxshape=(None,))
        f["name"] = ["a", "bc"]
    return tmp_path / "small.h5"


# ------------------------------------------------------------------------------------------------------- convert


def test_convert_says_what_it_did(small, tmp_path, command):
    done = command("convert", small, tmp_path / "small.nc", check=0)
    assert "HDF5 -> NetCDF" in done.stdout
    assert "/g/x: path -> variable name g_x" in done.stdout
    assert done.stderr == ""
    with pnc_vol.File(tmp_path / "small.nc") as f:
        assert f["g/x"][1].tolist() == [3, 4, 5]


def test_convert_quietly(small, tmp_path, verb):
    done = verb("convert", "--quiet", small, tmp_path / "small.nc", code=0)
    assert done.out == done.err == ""


def test_strict_exits_with_1_if_something_is_lost(small, tmp_path, verb):
    verb("convert", "--strict", small, tmp_path / "good.nc", code=0)
    with h5py.File(small, "a") as f:
        f["link"] = h5py.ExternalLink("other.h5", "/t")
    verb("convert", small, tmp_path / "loose.nc", code=0)
    done = verb("convert", "--strict", small, tmp_path / "strict.nc", code=1)
    assert "/link" in done.out
    assert done.err.startswith(f"pnc-vol: {small}: 1 thing cannot be kept")
    assert not (tmp_path / "strict.nc").exists()


def test_losses_are_listed_in_words_of_the_terminal(tmp_path: Path, verb: Any) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["big"] = np.arange(3, dtype="u8")
    done = verb("convert", "--format", "CDF-2", tmp_path / "a.h5", tmp_path / "a.nc")
    assert "CDF-2 has no type uint64; use --format CDF-5, or" in done.out
    assert "format='" not in done.out


def test_convert_refuses_to_replace(small, tmp_path, verb):
    (tmp_path / "there.nc").write_bytes(b"x")
    done = verb("convert", small, tmp_path / "there.nc", code=2)
    assert done.err == f"pnc-vol: {tmp_path}/there.nc: it exists already; give another name, or --overwrite\n"
    verb("convert", "--overwrite", small, tmp_path / "there.nc", code=0)


@pytest.mark.parametrize("verb", ["convert", "repack"])
def test_a_full_disk_is_told_of_the_target(tmp_path, verb):
    source = tmp_path / ("a.h5" if verb == "convert" else "a.nc")
    with (h5py if verb == "convert" else pnc_vol).File(source, "w") as f:
        f["large"], f["gone"] = np.zeros(500_000), np.zeros(1000)
    if verb == "repack":
        with pnc_vol.File(source, "a") as f:
            del f["gone"]
    content = source.read_bytes()
    target = tmp_path / "o.nc" if verb == "convert" else source

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    command = [sys.executable, "-m", "pnc_vol.cli", verb, *(["-i"] if verb == "repack" else []), str(source)]
    # bytecode that is cut by the limit would stop all later processes
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    command += [str(target)] if verb == "convert" else []
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limit, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith(f"pnc-vol: {target}: the file would be larger than allowed here")
    assert list(tmp_path.iterdir()) == [source]
    assert source.read_bytes() == content


def test_many_notes_of_a_kind_are_counted(tmp_path, verb):
    with h5py.File(tmp_path / "many.h5", "w") as f:
        for i in range(200):
            f[f"g/x{i}"] = i
    done = verb("convert", tmp_path / "many.h5", tmp_path / "many.nc", code=0)
    assert "and 199 more: path -> variable" in done.out
    assert len(done.out.splitlines()) < 40


def test_names_cannot_steer_the_terminal(tmp_path, verb):
    evil = "a\x1b[2J\x9b31m"
    with h5py.File(tmp_path / "e.h5", "w") as f:
        f[evil] = 1
        f[evil].attrs["at" + evil] = "v" + evil
        f.create_group("g" + evil)
        f["soft" + evil] = h5py.SoftLink("/x" + evil)
    outputs = [verb("convert", tmp_path / "e.h5", tmp_path / "e.nc", code=0)]
    for path in (tmp_path / "e.h5", tmp_path / "e.nc"):
        outputs.append(verb("ls", "-r", "-v", path, code=0))
    (tmp_path / "other.h5").write_bytes((tmp_path / "e.h5").read_bytes())
    with h5py.File(tmp_path / "other.h5", "a") as f:
        del f[evil]
    outputs.append(verb("diff", tmp_path / "e.h5", tmp_path / "other.h5", code=1))
    for done in outputs:
        assert "\x1b" not in done.out + done.err
        assert "\x9b" not in done.out + done.err
        assert "\\x1b[2J" in done.out


# ------------------------------------------------------------------------------------------------------------ ls


def test_ls_lists_like_h5ls(small, tmp_path, verb):
    verb("convert", "-q", small, tmp_path / "small.nc", code=0)
    for path in (small, tmp_path / "small.nc"):
        lines = verb("ls", path, code=0).out.splitlines()
        assert [line.split(maxsplit=1) for line in sorted(lines)] == [
            ["g", "Group"],
            ["name", "Dataset {2} string"],
            ["t", "Dataset {4/Inf} float64"],
        ]
        assert "/g/x" in verb("ls", "-r", path, code=0).out
        one = verb("ls", "-v", f"{path}/g/x", code=0).out
        assert one.startswith("x ")
        assert "@units = 'm'" in one
        assert "there is no object 'nix'" in verb("ls", f"{path}/nix", code=1).err
    assert "variable g_x" in verb("ls", "-v", f"{tmp_path}/small.nc/g", code=0).out


def test_ls_has_words_for_types(tmp_path, verb):
    for library, path in ((pnc_vol, tmp_path / "a.nc"), (h5py, tmp_path / "a.h5")):
        with library.File(path, "w") as f:
            f.create_dataset("rows", (2,), library.vlen_dtype("i4"))
            f.create_dataset("links", (1,), library.ref_dtype)
            f.create_dataset("tensors", (4,), "(2,3)f4")
        words = dict(line.split(maxsplit=1) for line in verb("ls", path, code=0).out.splitlines())
        assert words["rows"] == "Dataset {2} array(int32)"
        assert words["links"] == "Dataset {1} reference"
        assert words["tensors"] == "Dataset {4} float32[2, 3]"


def test_ls_ends_where_links_lead_in_circles(tmp_path, verb):
    with h5py.File(tmp_path / "c.h5", "w") as f:
        f.create_group("a")["up"] = f["/"]
        f["soft"] = h5py.SoftLink("/a")
    assert len(verb("ls", "-r", tmp_path / "c.h5", code=0).out.splitlines()) < 10


# --------------------------------------------------------------------------------------------------------- check


def test_check_tells_valid_from_broken_from_unreadable(small, tmp_path, verb):
    good = tmp_path / "good.nc"
    verb("convert", "-q", small, good, code=0)
    assert verb("check", good, code=0).out == f"{good}: valid, 0 errors, 0 warnings\n"
    assert verb("check", "-q", good, code=0).out == ""
    data = bytearray(good.read_bytes())
    bad = tmp_path / "bad.nc"
    bad.write_bytes(data[:60])
    done = verb("check", good, bad, code=1)
    assert "error: byte" in done.out
    assert f"{bad}: not valid, 1 error," in done.out
    done = verb("check", tmp_path / "none.nc", bad, code=2)
    assert "no such file" in done.err
    assert "not valid" in done.out
    assert "HDF5" in verb("check", small, code=1).out


# ----------------------------------------------------------------------------------------------------------- run

MAIN = "from importlib.metadata import entry_points\n[e.load()() for e in entry_points(name='pnc-vol')]"
"""What the installed command does."""
SCRIPT = """
import sys
import h5py
import neighbour
if __name__ == "__main__":
    with h5py.File(sys.argv[1], "w") as f:
        f.create_dataset("g/x", data=[1, 2, 3])
    print(sys.argv[1:], neighbour.VALUE, h5py.File.__module__)
    sys.exit(5)
"""


def test_an_unchanged_script_runs_on_pnc_vol(tmp_path, command):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "neighbour.py").write_text("VALUE = 'beside'")
    done = command("run", tmp_path / "script.py", tmp_path / "o.h5", "--help", "-v", "--", "x y", check=5)
    assert done.stdout.strip() == f"{[str(tmp_path / 'o.h5'), '--help', '-v', '--', 'x y']} beside pnc_vol.api.file"
    assert (tmp_path / "o.h5").read_bytes()[:4] == b"CDF\x05"
    with pnc_vol.File(tmp_path / "o.h5") as f:
        assert f["g/x"][:].tolist() == [1, 2, 3]


def test_a_script_that_fails_shows_its_traceback(tmp_path, command):
    (tmp_path / "s.py").write_text("1 / 0")
    told = command("run", tmp_path / "s.py", check=1).stderr
    assert "ZeroDivisionError" in told
    plain = subprocess.run([sys.executable, tmp_path / "s.py"], capture_output=True, text=True, check=False)
    assert told == plain.stderr
    (tmp_path / "wrong.py").write_text("1 = = 0")
    told = command("run", tmp_path / "wrong.py", check=1).stderr
    assert "SyntaxError" in told
    assert "pnc_vol" not in told.replace(str(tmp_path), "")
    assert "no such script" in command("run", tmp_path / "none.py", check=2).stderr


# ---------------------------------------------------------------------------------------------------------- demo


def test_demo_shows_a_file_on_its_way(tmp_path, command):
    done = command("demo", tmp_path / "d", check=0)
    assert "ocean_temperature sums up to 2556, as written" in done.stdout
    assert "/ocean/temperature" in done.stdout
    assert len(done.stdout.splitlines()) < 30
    assert (tmp_path / "d/demo.nc").read_bytes()[:4] == b"CDF\x05"
    assert "exists already" in command("demo", tmp_path / "d", check=2).stderr


def demo_without_netcdf4(folder: str) -> None:
    os.chdir(folder)
    sys.modules["netCDF4"] = None  # type: ignore[assignment]
    sys.argv = ["pnc-vol", "demo", "d"]
    next(iter(entry_points(name="pnc-vol"))).load()()


def test_the_demo_reads_with_ncdump_where_netcdf4_is_missing(tmp_path):
    if shutil.which("ncdump") is None:
        pytest.skip("ncdump is not installed (Debian: netcdf-bin)")
    done = fresh(demo_without_netcdf4, tmp_path)
    assert not done.returncode, done.stderr
    assert re.search("ncdump.*: ocean_temperature sums up to 2556, as written", done.stdout)


# ---------------------------------------------------------------------------------------------------- the command


def test_help_lists_the_verbs(command):
    text = command("--help", check=0).stdout
    assert all(name in text for name in ("convert", "dump", "ls", "check", "diff", "run", "demo"))
    assert command("--version", check=0).stdout == f"pnc-vol {pnc_vol.__version__}\n"
    assert command("nix").returncode == 2


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (["--help"], {"numpy", "argparse", "h5py"}),
        (["dump", "small.nc"], {"h5py", "pnc_vol.api.file", "pnc_vol.convert.inspect_hdf5"}),
        (["ls", "-v", "small.nc"], {"h5py", "pnc_vol.convert.hdf5", "pnc_vol.convert.link_state"}),
        (["check", "small.nc"], {"h5py", "pnc_vol.convert.hdf5"}),
    ],
)
def test_a_verb_loads_what_it_needs(tmp_path: Path, words: list[str], unwanted: set[str]) -> None:
    """A small file is listed in the time that numpy takes to load, and a half more."""
    with pnc_vol.File(tmp_path / "small.nc", "w") as f:
        f["x"] = [1, 2, 3]
    code = (
        f"import sys\nsys.argv = ['pnc-vol', *{words!r}]\ntry:\n    {MAIN.replace(chr(10), '; ')}\n"
        f"except SystemExit as end:\n    assert not end.code\nprint(sorted({unwanted!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_short_h_alone_is_a_short_help(verb) -> None:
    for words in ([], *([name] for name in verbs())):
        short, long = verb(*words, "-h", code=0).out, verb(*words, "--help", code=0).out
        assert short.startswith(" ".join(["Usage: pnc-vol", *words]))
        assert len(short.splitlines()) < len(long.splitlines())
        assert f"{' '.join(['pnc-vol', *words])} --help" in short
        assert words or set(verbs()) <= set(short.split())
    assert verb("replay", "-h", code=0).out.splitlines()[-3:] == [
        "file.",
        "",
        "pnc-vol replay --help describes the arguments.",
    ]
    for words in (["dump", "--help"], ["diff", "--help"]):
        assert "header" in verb(*words, code=0).out
    for name in verbs():
        text = verb(name, "--help", code=0).out
        assert text.startswith(f"Usage: pnc-vol {name} ")
        assert "``" not in text, "markup of docstrings"
        assert ". ." not in text
        assert ".." not in text.replace("...", "")
        assert not re.search(r"\.\.\.,|, \.\.\.|(\[?\b[A-Z./\[\]]+) \[\1 \.\.\.\]", text), "dots are written once"
    assert verb(code=0).out == verb("--help", code=0).out


@pytest.mark.parametrize("library", [h5py, pnc_vol])
def test_ls_of_a_link_that_leads_to_nothing_names_where_it_leads(tmp_path: Path, verb: Any, library: Any) -> None:
    with library.File(tmp_path / "a", "w") as f:
        f["away"], f["soft"] = library.ExternalLink("none.h5", "/x"), library.SoftLink("/gone")
    for name, where in (("away", '<ExternalLink to "/x" in file "none.h5"'), ("soft", '<SoftLink to "/gone">')):
        told = verb("ls", tmp_path / "a" / name, code=1).err
        assert told.endswith(f"a: '{name}' is {where}, where nothing can be read; check that it is there\n")
        assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["dmp"], "pnc-vol: dmp: there is no such verb; do you mean dump?"),
        (["--versoin"], "pnc-vol: --versoin: there is no such option; do you mean --version?"),
        (["nothing\x1b[2J"], "pnc-vol: 'nothing\\x1b[2J': there is no such verb; pnc-vol --help lists them"),
        (["ls"], "pnc-vol: ls: the following arguments are required: FILE[/PATH]; see pnc-vol ls --help"),
        (["ls", "--recursiv", "a"], "pnc-vol: ls: unknown arguments: --recursiv; see pnc-vol ls --help"),
        (["repack", "a", "--var-align", "0"], "pnc-vol: repack: argument --var-align: 0 is below 1; see"),
        (["refs", "a"], "pnc-vol: refs: the following arguments are required: -o/--output; see"),
        (["view", "a", "--port", "70000"], "pnc-vol: --port: 70000 is no port"),
        (["replay"], "pnc-vol: replay: the following arguments are required: FILE; see"),
    ],
)
def test_a_wrong_command_line_is_one_line(verb, words: list[str], text: str) -> None:
    done = verb(*words, code=2)
    assert done.err.startswith(text)
    assert (done.out, done.err.count("\n")) == ("", 1)


def test_options_stand_between_files_and_dashes_end_them(tmp_path: Path, verb, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.nc", "-b.nc"):
        with pnc_vol.File(name, "w") as f:
            f["g/x"] = 1
    assert verb("ls", "a.nc", "-r", "a.nc", code=0).out.count("/g/x") == 2
    assert verb("ls", "-r", "--", "-b.nc", code=0).out.count("/g/x") == 1
    assert verb("ls", "-rv", "a.nc", code=0).out.count("variable") == 1
    # a value beside its option, in its word, or behind other options in one word
    with pnc_vol.File("v.nc", "w") as f:
        f["v"], f["h"] = 12345, 67890
    for words in (["-v", "v"], ["-vv"], ["--variables=v"], ["--variables", "v"]):
        for ordered in (["dump", *words, "v.nc"], ["dump", "v.nc", *words]):
            shown = verb(*ordered, code=0).out
            assert ("12345" in shown, "67890" in shown) == (True, False)
    assert "12345" not in verb("dump", "v.nc", "-hv", "v", code=0).out


def test_the_tab_key_completes_verbs_and_options(tmp_path: Path, verb, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    assert set(verbs()) < set(verb("--complete", code=0).out.split())
    assert {"--overwrite", "--strict"} < set(verb("--complete", "convert", code=0).out.split())
    for shell in ("bash", "zsh", "fish"):
        monkeypatch.setenv("SHELL", f"/bin/{shell}")
        script = verb("--show-completion", code=0).out
        path = verb("--install-completion", code=0).out.partition(" is in ")[2].partition(";")[0]
        assert Path(path).is_relative_to(tmp_path)
        assert Path(path).read_text() == script
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert "give the shell" in verb("--show-completion", code=2).err
    if (bash := shutil.which("bash")) is None:
        pytest.skip("bash is not installed")
    (tmp_path / "pnc-vol").write_text(f'#!/bin/sh\nexec {sys.executable} -m pnc_vol.cli "$@"\n')
    (tmp_path / "pnc-vol").chmod(0o755)
    script = verb("--show-completion", "bash").out
    ask = 'COMP_WORDS=($WORDS); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _pnc_vol pnc-vol "${COMP_WORDS[-1]}"; '
    for words, found in (("pnc-vol conv", "convert"), ("pnc-vol ls --rec", "--recursive"), ("pnc-vol ls fi", "")):
        env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "WORDS": words}
        code = f'{script}\n{ask} echo "${{COMPREPLY[@]}}"'
        done = subprocess.run([bash, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == found


PLANNED = """
import h5py, sys
with h5py.File(sys.argv[1], "w") as f:
    x = f.create_dataset("x", (50, 10), dtype="f8")
    for i in range(50):
        x[i] = i
    f.flush()
    x[::2] = 1
"""


@pytest.mark.parametrize("dry", [False, True])
def test_plan(command, tmp_path, dry):
    (tmp_path / "script.py").write_text(PLANNED)
    target = tmp_path / "out.nc"
    done = command("plan", *(["--dry-run"] if dry else []), tmp_path / "script.py", target, check=0)
    head, first, second = (line.split() for line in done.stdout.splitlines())
    assert " ".join(head) == "requests runs extents rounds bytes transport agree layout fill data header file"
    assert first[:6] == ["50", "50", "1", "0", "4000", "independent"]
    assert second[:6] == ["1", "25", "25", "0", "2000", "independent"]
    assert {first[-1], second[-1]} == {"out.nc"}
    assert target.exists() == (not dry)


ON_RANKS = """
import h5py, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
with h5py.File(sys.argv[1], "w", driver="mpio", comm=comm) as f:
    x = f.create_dataset("x", (2, 10), "f8")
    x[comm.rank, : 5 + comm.rank] = 1
    f.flush()
{}
"""


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_plan_on_ranks_prints_one_table_of_all(tmp_path):
    script, target = tmp_path / "script.py", tmp_path / "out.nc"
    script.write_text(ON_RANKS.format(""))
    done = run_mpi(2, "pnc_vol.cli", "plan", "--json", script, target)
    flushes = [one for one in json.loads(done.stdout) if one["requests"]]
    assert [(one["rank"], one["nbytes"]) for one in flushes] == [(0, 40), (1, 48)]
    head, *rows = (line.split() for line in run_mpi(2, "pnc_vol.cli", "plan", script, target).stdout.splitlines())
    assert head[:2] == ["rank", "requests"]
    assert [row[:3] for row in rows if row[1] != "0"] == [["0", "1", "1"], ["1", "1", "1"]]
    script.write_text(ON_RANKS.format("MPI.Finalize()"))
    done = run_mpi(2, "pnc_vol.cli", "plan", script, target)
    assert done.stdout.count("requests") == 2, "ranks that cannot speak to one another any more print their own"


REOPENING = """
import h5py, sys
path = sys.argv[1]
with h5py.File(path, "w") as f:
    f["x"] = [1, 2, 3]
with h5py.File(path, "r+") as f:
    assert f["x"][:].tolist() == [1, 2, 3]
    f["x"][1] = 7
    f["longer"] = "y" * 9000
with h5py.File(path) as f:
    assert f["x"][:].tolist() == [1, 7, 3]
try:
    h5py.File(path, "w-")
except FileExistsError:
    print("exists")
if len(sys.argv) > 2:
    with h5py.File(sys.argv[2], "a") as f:
        assert f["old"][()] == 5
        f["old"][()] = 6
    with h5py.File(sys.argv[2]) as f:
        assert f["old"][()] == 6
left = h5py.File(path, "a")
left["more"] = 1
"""


@pytest.mark.parametrize("old", [False, True])
def test_a_dry_run_sees_its_own_writes_and_changes_nothing(command, tmp_path, old):
    (tmp_path / "script.py").write_text(REOPENING)
    work = tmp_path / "work"
    work.mkdir()
    if old:
        with pnc_vol.File(work / "out.nc", "w") as f:
            f["x"] = "stale"
        with pnc_vol.File(work / "other.nc", "w") as f:
            f["old"] = 5
    before = {path.name: path.read_bytes() for path in work.iterdir()}
    others = [work / "other.nc"] if old else []
    done = command("plan", "--dry-run", tmp_path / "script.py", work / "out.nc", *others, check=0)
    assert done.stdout.startswith("exists\n")
    assert done.stderr == ""
    assert {path.name: path.read_bytes() for path in work.iterdir()} == before


def test_plan_of_a_script_that_fails_shows_what_was_flushed(command, tmp_path):
    (tmp_path / "script.py").write_text(PLANNED + "1 / 0\n")
    done = command("plan", tmp_path / "script.py", tmp_path / "out.nc", check=1)
    assert "ZeroDivisionError" in done.stderr
    assert len(done.stdout.splitlines()) == 3


def test_check_says_what_pncvol_lies_about(tmp_path, verb):
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["g/a"] = 1
        f["g/a"].attrs["m"] = np.arange(4).reshape(2, 2)
    assert "valid, 0 errors, 0 warnings" in verb("check", tmp_path / "x.nc", code=0).out
    raw = (tmp_path / "x.nc").read_bytes()
    (tmp_path / "x.nc").write_bytes(raw.replace(b"[2,2]", b"[2,3]").replace(b'"/g/a"', b'"/../"'))
    lines = verb("check", tmp_path / "x.nc", code=0).out.splitlines()
    assert lines == [
        f"{tmp_path}/x.nc: warning: pnc_vol_hdf5: variable 'g_a': cannot be at '/../'; it is in the root group",
        f"{tmp_path}/x.nc: warning: pnc_vol_hdf5: variable 'g_a': attribute 'm': its marker does not fit its 4 values",
        f"{tmp_path}/x.nc: valid, 0 errors, 2 warnings",
    ]


# ----------------------------------------------------------------------------------------------- the reference


def test_the_reference_has_every_verb() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
    assert set(re.findall(r"(?m)^\| \[`([\w-]+)", text)) == set(verbs())
    assert set(re.findall(r"(?m)^## ([\w-]+)$", text)) == set(verbs())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("convert --overwrite a.nc a.nc", "the source itself; give another name"),
        ("convert a.nc b.nc", "give another name, or --overwrite"),
        ("refs none.nc -o x.json", "there is no such file; check the name"),
        ("repack https://x.y/z.nc", "no addresses"),
        ("view https://x.y/z.nc", "no addresses"),
        ("profile a.nc", "it is no timeline"),
        ("profile cut.json", "it is no timeline"),
        ("profile none.json", "there is no such file"),
        ("doctor none", "there is no such directory"),
        ("link a.h5 l.h5", "pnc-vol: a.h5: it is an HDF5 file already"),
        ("convert --compression zip a.nc c.h5", "--compression 'zip'"),
        ("convert --compression 12 a.nc c.h5", "--compression 12"),
        ("convert --format CDF-9 a.h5 c.nc", "--format 'CDF-9'"),
        ("repack --format CDF-2 a.nc c.nc", "CDF-2 has no type int64; use --format CDF-5"),
        ("demo a.nc", "it is a file; name a directory"),
        ("doctor a.nc", "it is a file; name the directory"),
        ("run .", "pnc-vol: .: it is a directory; name a script in it"),
        ("plan .", "it is a directory; name a script in it"),
        ("run missing.py", "pnc-vol: missing.py: there is no such script"),
        ("plan missing.py", "there is no such script"),
        ("diff a.h5 none", "there is no such file"),
        ("view none.nc --no-browser", "there is no such file"),
    ],
)
def test_mistakes_are_said_in_one_line_of_words_that_a_terminal_has(
    tmp_path: Path, verb: Any, monkeypatch: pytest.MonkeyPatch, words: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.nc", "b.nc"):
        with pnc_vol.File(name, "w") as f:
            f["x"] = [1]
    Path("cut.json").write_text("{")
    with h5py.File("a.h5", "w") as f:
        f["x"] = [1]
    there = sorted(os.listdir())
    told = verb(*words.split(), code=2).err
    assert text in told
    assert told.count("\n") == 1
    assert not [word for word in ("overwrite=", "mode '", "[Errno", "Traceback", "compression=") if word in told]
    assert sorted(os.listdir()) == there
