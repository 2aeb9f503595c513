"""What a release consists of besides the code: one version, a change log that names it, a citation that tools read."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import pkgutil
import re
import sys
from pathlib import Path

import pytest
from other_process import fresh
from packaging.version import Version

import pnc_vol

ROOT = Path(__file__).parents[1]


def test_the_version_is_written_in_one_place() -> None:
    assert importlib.metadata.version("pnc-vol") == pnc_vol.__version__
    found = re.findall(r"(?m)^## (\S+?),", (ROOT / "CHANGELOG.md").read_text())
    assert found[0] == pnc_vol.__version__
    for name in ("pyproject.toml", "CITATION.cff", "recipe/meta.yaml"):
        assert not re.search(r"(?m)^\s*version:? *[=:]? *[\"']?\d+\.\d+\.\d+", (ROOT / name).read_text()), name


def defaults() -> None:
    """Print how many fields all dataclasses have, and those whose default is a list, a dictionary or a set."""
    with contextlib.suppress(ImportError):
        import mpi4py

        mpi4py.rc.initialize = False
    for module in pkgutil.walk_packages(pnc_vol.__path__, "pnc_vol."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    modules = [module for name, module in sorted(sys.modules.items()) if name.partition(".")[0] == "pnc_vol"]
    classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    fields = [(each, one) for each in classes if dataclasses.is_dataclass(each) for one in dataclasses.fields(each)]
    print(len(fields), *[f"{each}.{one.name}" for each, one in fields if isinstance(one.default, (list, dict, set))])


def test_defaults_of_dataclasses_suit_the_oldest_python() -> None:
    """Python 3.10 refuses every list, dict and set as a default, later ones only those that cannot be hashed."""
    done = fresh(defaults)
    assert not done.returncode, done.stderr
    count, *wrong = done.stdout.split()
    assert int(count) > 100
    assert wrong == []


def test_the_oldest_versions_that_ci_tries_are_those_that_are_allowed() -> None:
    allowed = dict(re.findall(r'"(\w+)>=([\d.]+)', (ROOT / "pyproject.toml").read_text()))
    tried = dict(re.findall(r"(?m)^(\w+)==([\d.]+)$", (ROOT / ".ci" / "oldest.txt").read_text()))
    assert {"numpy", "h5py", "xarray"} <= tried.keys()
    assert {name: Version(allowed[name]) for name in tried} == {name: Version(tried[name]) for name in tried}


def test_the_citation_can_be_read() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (pip install 'pnc-vol[test]')")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["license"] == "BSD-3-Clause"


def test_the_recipe_needs_what_the_wheel_needs() -> None:
    recipe = (ROOT / "recipe" / "meta.yaml").read_text()
    run = recipe.partition("\n  run:\n")[2].partition("\n  #")[0]
    needed = re.search(r"(?m)^dependencies = \[(.*)\]$", (ROOT / "pyproject.toml").read_text())
    assert needed is not None
    assert set(re.findall(r"- (\w+) ", run)) == {"python", *re.findall(r'"(\w+)', needed[1])}
    assert "pnc-vol = pnc_vol.cli.main:main" in recipe
