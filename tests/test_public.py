"""What the package offers by name: every exception, and documentation of every public function and method."""

from __future__ import annotations

import doctest
import inspect
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import pnc_vol
from pnc_vol import errors


def test_every_exception_can_be_caught_by_its_name_in_the_package() -> None:
    listed = {name for name in errors.__all__ if issubclass(getattr(errors, name), BaseException)}
    for name in listed:
        assert name in pnc_vol.__all__
        assert getattr(pnc_vol, name) is getattr(errors, name)
    assert issubclass(pnc_vol.LossError, pnc_vol.PncVolError)


def test_every_exception_of_the_module_is_listed() -> None:
    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == errors.__name__
    }
    # a request of the decoder to its caller, which never reaches a program
    assert found - {"NeedBytes"} <= set(errors.__all__)


# ---------------------------------------------------------------------------------------------- documentation


def sections(text: str) -> set[str]:
    """The headings of a numpydoc docstring."""
    lines = inspect.cleandoc(text).splitlines()
    return {name for name, rule in itertools.pairwise(lines) if rule and set(rule) == {"-"}}


def public() -> Iterator[tuple[str, Any]]:
    """The functions and classes of the package, and the methods of the classes that users hold."""
    for name in pnc_vol.__all__:
        value = getattr(pnc_vol, name)
        if isinstance(value, type) and issubclass(value, BaseException):
            continue
        if inspect.isfunction(value) or inspect.isclass(value):
            yield name, value
    for cls in (pnc_vol.File, pnc_vol.Group, pnc_vol.Dataset, pnc_vol.AttributeManager, pnc_vol.Request):
        for name, value in inspect.getmembers(cls):
            ours = (getattr(value, "__module__", None) or "").startswith("pnc_vol")
            if name.startswith("_") or not ours or not (inspect.isfunction(value) or inspect.ismethod(value)):
                continue
            yield f"{cls.__name__}.{name}", value


def arguments(value: Any) -> list[str]:
    """The names of what a caller passes."""
    try:
        found = inspect.signature(value).parameters.values()
    except ValueError:
        return []
    return [each.name for each in found if each.name != "self"]


OF_PYTHON = {"keys", "values", "items", "get", "pop", "popitem", "update", "setdefault"}
"""Methods of every mapping."""

NEVER_RAISE = {
    "File.statistics", "Dataset.test", "get_config", "registered_drivers", "register_driver",
    "Request.test", "check_complex_dtype", "check_dtype", "check_enum_dtype", "check_opaque_dtype", "check_ref_dtype",
    "check_string_dtype", "check_vlen_dtype", "HardLink", "SoftLink", "ExternalLink", "is_hdf5", "HLObject",
    "AttributeManager", "VirtualLayout", "complex_compat_dtype", "string_dtype", "vlen_dtype", "opaque_dtype",
    "Reference", "RegionReference", "Request", "Request.of", "Empty",
}  # fmt: skip
"""They have nothing to refuse."""

EXAMPLES = re.findall(
    r"\S+",
    """
    File check link repack patch replay File.flush File.wait_all File.cancel File.plan File.close
    Group.create_dataset Group.create_group Group.require_dataset Group.require_group Group.copy Group.tree
    Group.move Group.visititems Dataset.iput Dataset.iget Dataset.iput_many Dataset.iget_many Dataset.resize
    Dataset.refresh Dataset.flush Dataset.read_direct Dataset.write_direct Dataset.astype Dataset.asstr
    Dataset.fields Dataset.make_scale Dataset.iter_chunks AttributeManager.create AttributeManager.modify Group
    Dataset AttributeManager Decomposition read_decompositions
""",
)
"""What users call first: an example of each runs."""


NO_PARAMETERS = {"File.build_virtual_dataset", "Group.build_virtual_dataset", "Request"}
"""They refuse whatever is given, or are not made by users."""


def test_public_names_say_what_they_take_and_raise() -> None:
    missing = []
    for name, value in public():
        if name.rpartition(".")[2] in OF_PYTHON:
            continue
        have = sections(value.__doc__ or "")
        if not value.__doc__:
            missing.append(f"{name}: no docstring")
        if arguments(value) and "Parameters" not in have and name not in NO_PARAMETERS:
            missing.append(f"{name}: no Parameters")
        if "Raises" not in have and name not in NEVER_RAISE:
            missing.append(f"{name}: no Raises")
    assert not missing, "\n".join(missing)


def test_examples_of_what_users_call_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = dict(public())
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for name in EXAMPLES:
        value = known[name]
        public_names = {each: getattr(pnc_vol, each) for each in pnc_vol.__all__}
        names = {**public_names, "pnc_vol": pnc_vol, "np": numpy}
        test = doctest.DocTestParser().get_doctest(inspect.getdoc(value) or "", names, name, None, 0)
        assert test.examples, f"{name} has no example"
        assert not any(example.options.get(doctest.SKIP) for example in test.examples), name
        assert runner.run(test).failed == 0, name
