"""A new layout, which is another file, has the owner, the attributes and the access list of the old one."""

from __future__ import annotations

import os
import pathlib
import struct
import warnings

import numpy as np
import pytest
from kills import forked
from this_system import needs_attributes

import pnc_vol
from pnc_vol.errors import PncVolWarning

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    made = tmp_path / "x.nc"
    with pnc_vol.File(made, "w") as f:
        f["x"] = [1, 2, 3]
    return made


def grow(path: pathlib.Path) -> None:
    """Make the header outgrow its reserve."""
    before = path.stat().st_ino
    with pnc_vol.File(path, "r+") as f:
        f.attrs["long"] = np.arange(9000)
    assert path.stat().st_ino != before
    with pnc_vol.File(path) as f:
        assert f["x"][:].tolist() == [1, 2, 3]


def test_permissions_stay(path: pathlib.Path) -> None:
    path.chmod(0o640)
    grow(path)
    assert path.stat().st_mode & 0o7777 == 0o640


@needs_attributes
def test_extended_attributes_stay(path: pathlib.Path) -> None:
    try:
        os.setxattr(path, "user.origin", b"station 7")
    except OSError:
        pytest.skip("no extended attributes here")
    grow(path)
    assert os.getxattr(path, "user.origin") == b"station 7"


@needs_attributes
def test_an_access_list_stays(path: pathlib.Path) -> None:
    """user::rw-, user:4321:r--, group::r--, mask::r--, other::---"""
    entries = [(1, 6, 2**32 - 1), (2, 4, 4321), (4, 4, 2**32 - 1), (16, 4, 2**32 - 1), (32, 0, 2**32 - 1)]
    wanted = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", wanted)
    except OSError:
        pytest.skip("no access control lists here")
    grow(path)
    assert os.getxattr(path, "system.posix_acl_access") == wanted
    assert path.stat().st_mode & 0o777 == 0o640


@root
def test_the_owner_stays(path: pathlib.Path) -> None:
    os.chown(path, 4321, 4322)
    path.chmod(0o2755)
    grow(path)
    there = path.stat()
    assert (there.st_uid, there.st_gid, there.st_mode & 0o7777) == (4321, 4322, 0o2755)


@root
def test_an_owner_that_cannot_stay_is_a_warning(path: pathlib.Path) -> None:
    for folder in (path.parent, *path.parent.parents):
        if folder == pathlib.Path("/tmp"):
            break
        folder.chmod(0o777)
    path.chmod(0o666)

    def job(pipe: int) -> None:
        os.setgroups([])
        os.setgid(4321)
        os.setuid(4321)
        if not os.access(pnc_vol.__file__, os.R_OK):
            os.write(pipe, b"-")
            return
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with pnc_vol.File(path, "r+") as f:
                f.attrs["long"] = np.arange(9000)
        os.write(pipe, "".join(str(one.message) for one in told).encode())

    child, reading = forked(job)
    told = os.read(reading, 10_000).decode()
    assert os.waitpid(child, 0)[1] == 0
    if told == "-":
        pytest.skip("another user cannot read this package")
    assert "could not keep its owner, user 0 and group 0" in told
    assert path.stat().st_uid == 4321
    # what was for root's group is not for the user's
    assert path.stat().st_mode & 0o777 == 0o666


def test_other_names_keep_the_old_file_and_that_is_said(path: pathlib.Path) -> None:
    other = path.with_name("other.nc")
    os.link(path, other)
    with pytest.warns(PncVolWarning, match=r"has 1 more name\(s\) \(hard links\)"):
        grow(path)
    with pnc_vol.File(other) as f:
        assert f["x"][:].tolist() == [1, 2, 3]
        assert "long" not in f.attrs


def test_a_change_in_place_says_nothing_of_other_names(path: pathlib.Path) -> None:
    os.link(path, path.with_name("other.nc"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", PncVolWarning)
        with pnc_vol.File(path, "r+") as f:
            f["x"][1] = 20
