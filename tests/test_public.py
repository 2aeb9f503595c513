"""What the package offers by name: every exception, and documentation of every public function and method."""

from __future__ import annotations

import pnc_vol
from pnc_vol import errors
from pnc_vol.interop.report import LossError


def test_every_exception_can_be_caught_by_its_name_in_the_package() -> None:
    listed = {name for name in errors.__all__ if issubclass(getattr(errors, name), BaseException)}
    # a request of the decoder to its caller, which never reaches a program
    for name in listed - {"NeedBytes"}:
        assert name in pnc_vol.__all__
        assert getattr(pnc_vol, name) is getattr(errors, name)
    assert pnc_vol.LossError is LossError


def test_every_exception_of_the_module_is_listed() -> None:
    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == errors.__name__
    }
    assert found <= set(errors.__all__)
