"""Hostile headers: what is refused, how, where, and at what cost."""

from __future__ import annotations

import contextlib
import time
import tracemalloc

import malformed
import pytest
from file_format import Decoded, check, decode, encode

from pnc_vol import errors
from pnc_vol.errors import FormatError, NeedBytes

CASES = malformed.cases()
CLASSES = {
    "NotCDF": errors.NotCDFError,
    "Truncated": errors.TruncatedHeaderError,
    "Corrupt": errors.CorruptHeaderError,
    "Limit": errors.LimitError,
}
RANGES = (
    (1, 12),
    (20, 27),
    (30, 66),
    (70, 129),
    (150, 153),
    (160, 163),
    (170, 172),
    (180, 186),
    (190, 206),
    (1300, 1315),
)
CATALOGUE = [number for first, end in RANGES for number in range(first, end)]


def by_prefixes(data: bytes, file_size: int) -> Decoded:
    """Decode as a reader of a file does: ask for a little, then for what the decoder wants."""
    have = min(8, file_size)
    for _ in range(64):
        try:
            return decode(data[:have], file_size=file_size)
        except NeedBytes as request:
            asked = request.nbytes
        assert have < asked <= file_size
        have = asked
    raise AssertionError("the decoder never has enough")


def test_the_catalogue_is_complete() -> None:
    made = {case.number for case in CASES}
    assert len(CATALOGUE) == 158
    assert {f"{n:03d}" for n in CATALOGUE} <= made
    assert sum(case.number == "000" for case in CASES) == 3


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number}-cdf{case.version}")
def test_case(case: malformed.Case) -> None:
    outcomes = case.outcome.split("/")
    # Measured: 0.7 ms, and 50 to 350 ms for the big ones, on a busy machine.
    big = case.number in ("180", "181", "182")
    data, file_size = case.made
    started = time.process_time()
    error: FormatError | None = None
    try:
        got = decode(data, file_size=file_size)
    except FormatError as found:
        error = found
    assert time.process_time() - started < (2.5 if big else 0.5)
    # Tracing makes the many small objects of the big cases ten times slower: one format is enough, without the clock.
    if not big or case.version == 5:
        tracemalloc.start()
        with contextlib.suppress(FormatError):
            decode(case.data, file_size=case.file_size)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= (32 << 20)
    if error is not None:
        assert type(error) in [CLASSES[name] for name in outcomes if name in CLASSES], str(error)
        assert isinstance(error, OSError)
        assert error.field.startswith(case.field)
        assert error.value is not None
        assert error.offset is not None
        assert 0 <= error.offset <= case.file_size
        if case.offset >= 0:
            assert error.offset == case.offset
            assert error.field == case.field
        with pytest.raises(type(error)) as again:
            by_prefixes(case.data, case.file_size)
        assert (again.value.offset, again.value.field) == (error.offset, error.field)
    elif "warn" in outcomes:
        said = [finding for finding in got.findings if finding.field.startswith(case.field)]
        assert said, got.findings
        assert {finding.severity for finding in got.findings} == {"warning"}
        if case.offset >= 0:
            assert said[0].offset == case.offset
    else:
        assert case.outcome == "accept"
        assert got.findings == ()
    found = check(case.data, file_size=case.file_size)
    if error is not None:
        assert found[0].severity == "error"
        assert found[0].field == error.field
    elif case.outcome == "accept":
        assert [finding for finding in found if finding.field != "file_size"] == []
    else:
        assert found


@pytest.mark.parametrize("number", ["047", "103", "180", "181", "182", "000", "089", "050", "052", "053", "054", "183"])
def test_what_is_accepted_is_whole_with_odd_names_too(number: str) -> None:
    odd = number in ("050", "052", "053", "054", "183")
    for case in CASES:
        if case.number == number:
            got = decode(case.data, file_size=case.file_size)
            assert encode(got.header, check=not odd) == case.data[: got.nbytes]
            assert by_prefixes(case.data, case.file_size) == got
            if odd:
                with pytest.raises(errors.DefinitionError):
                    encode(got.header)


def test_names_are_shown_without_control_characters() -> None:
    case = next(case for case in CASES if case.number == "054")
    (finding,) = decode(case.data, file_size=case.file_size).findings
    assert finding.message.isprintable()


@pytest.mark.parametrize("version", [1, 2, 5])
def test_order_may_be_tolerated_but_never_an_overlap(version: int) -> None:
    for case in CASES:
        if case.version == version and case.number == "126":
            got = decode(case.data, file_size=case.file_size, tolerant_order=True)
            assert got.header.vars[0].begin > got.header.vars[1].begin
        if case.version == version and case.number in ("124", "125", "128"):
            with pytest.raises(errors.CorruptHeaderError):
                decode(case.data, file_size=case.file_size, tolerant_order=True)


def test_streaming_is_derived_from_the_size() -> None:
    for case in CASES:
        if case.number in ("020", "025"):
            assert decode(case.data, file_size=case.file_size).header.numrecs == 2
            # PnetCDF leaves the last padding out; a cut record is none.
            shorter = decode(case.data, file_size=case.file_size - 5)
            assert shorter.header.numrecs == 1


def test_a_longer_header_than_allowed_is_refused_before_it_is_read() -> None:
    case = next(case for case in CASES if case.number == "182" and case.version == 5)
    with pytest.raises(errors.LimitError, match="max_header_bytes"):
        decode(case.data, file_size=case.file_size, max_header_bytes=100_000)
    with pytest.raises(errors.LimitError, match="max_header_bytes"):
        decode(case.data[:100_000], file_size=case.file_size, max_header_bytes=100_000)


def test_hdf5_is_named_at_every_place_of_its_signature() -> None:
    for at in (0, 512, 1024, 2048):
        with pytest.raises(errors.NotCDFError, match="HDF5 file"):
            decode(bytes(at) + b"\x89HDF\r\n\x1a\n" + bytes(99), file_size=at + 107)
