"""The validator checks a header and the size of the file.

Knows: what `decode` finds, and what it lets pass. Does not know: files, data.

Rules
-----
1. An error is what makes readers refuse the file or return wrong values, or what ncvalidator fails: every error
   that `decode` raises, padding that is not NUL, records that overlap.
2. A warning is what readers get along with: a wrong vsize, odd names, missing or extra bytes, a useless ``_FillValue``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pnc_vol.errors import FormatError
from pnc_vol.format.decode import Decoded, examine
from pnc_vol.format.limits import MAX_HEADER_BYTES
from pnc_vol.format.model import TYPES, WIDTHS, Finding, Header, data_end, inner_sizes, pad4, record_size, record_vars

__all__ = ["check", "missing_text", "short_data", "whole_records"]

_SHOWN = 4
"""Variables that a warning names."""


def check(
    data: bytes | bytearray | memoryview, *, file_size: int, max_header_bytes: int = MAX_HEADER_BYTES
) -> list[Finding]:
    """List what is wrong with a file.

    Parameters
    ----------
    data : bytes-like
        The file from its start, with its whole header.
    file_size : int
        Bytes of the whole file.
    max_header_bytes : int
        A longer header is an error.

    Returns
    -------
    list of Finding
        Errors first. A header that cannot be decoded is one error, the first.

    Raises
    ------
    NeedBytes
        `data` ends inside the header, but the file goes on.

    Examples
    --------
    >>> check(b"CDF\\x01" + bytes(28), file_size=32)
    []
    >>> [finding.field for finding in check(b"CDF\\x01" + bytes(27), file_size=31)]
    ['var.nelems']
    """
    try:
        decoded, found = examine(data, file_size=file_size, max_header_bytes=max_header_bytes)
    except FormatError as error:
        return [Finding("error", error.offset or 0, error.field, error.value, str(error))]
    findings = [_strict(finding, decoded.header) for finding in found]
    if not any(finding.severity == "error" for finding in findings):
        findings += _vsizes(bytes(memoryview(data)[: decoded.nbytes]), decoded)
        findings += _fill_values(decoded)
        findings += _end(decoded, file_size)
    return sorted(findings, key=lambda finding: (finding.severity != "error", finding.offset))


def short_data(header: Header, file_size: int) -> list[tuple[str, int]]:
    """List the variables whose data the file does not hold whole.

    Returns
    -------
    list of (str, int)
        Name, and missing bytes of data; padding does not count.

    Examples
    --------
    >>> from pnc_vol.format.model import Dim, Var
    >>> header = Header(1, dims=(Dim("x", 10),), vars=(Var("a", (0,), (), 4, 100),))
    >>> short_data(header, 128)
    [('a', 12)]
    """
    if not header.vars or file_size >= data_end(header):
        return []
    stride, records = record_size(header), set(record_vars(header))
    found = []
    for i, (var, size) in enumerate(zip(header.vars, inner_sizes(header), strict=True)):
        count, step = (header.numrecs, stride) if i in records else (1, size)
        # The first record that is not whole; only that one may be there in part.
        first = max(0, (file_size - var.begin - size) // step + 1)
        if first < count:
            partial = min(size, var.begin + first * step + size - file_size)
            found.append((var.name, partial + (count - first - 1) * size))
    return found


def missing_text(missing: Sequence[tuple[str, int]]) -> str:
    """Return what `short_data` found as the text of a warning, without the file.

    Examples
    --------
    >>> missing_text([("a", 12)]).partition(";")[0]
    '12 bytes of data are missing at the end of the file, of a (12 bytes)'
    """
    names = ", ".join(f"{name} ({nbytes} bytes)" for name, nbytes in missing[:_SHOWN])
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    return (
        f"{sum(n for _, n in missing)} bytes of data are missing at the end of the file, of {names}{more}; "
        "they read as the fill value (strict=True makes reading them an error)"
    )


def whole_records(header: Header, file_size: int) -> int:
    """Return how many records the file holds whole, of those that the header counts; padding does not count.

    Examples
    --------
    >>> from pnc_vol.format.model import Dim, Var
    >>> header = Header(1, 5, (Dim("t", 0), Dim("x", 10)), vars=(Var("a", (0, 1), (), 4, 100),))
    >>> whole_records(header, 100 + 2 * 40 + 39)
    2
    """
    if file_size >= data_end(header):
        return header.numrecs
    stride, sizes = record_size(header), inner_sizes(header)
    found = [max(0, (file_size - header.vars[i].begin - sizes[i]) // stride + 1) for i in record_vars(header)]
    return min([header.numrecs, *found])


def _strict(finding: Finding, header: Header) -> Finding:
    """Raise to an error what a reader may accept but a checker must not."""
    padding = finding.field.endswith((".namepad", ".valuepad"))
    # A begin that is aligned, and only warned of, has a gap before it that makes records overlap.
    gap = finding.field.endswith(".begin") and isinstance(finding.value, int) and not finding.value & 3
    if padding or (gap and header.numrecs > 1):
        return finding._replace(severity="error")
    return finding


def _vsizes(data: bytes, decoded: Decoded) -> Iterator[Finding]:
    """Yield the vsizes without padding, which `decode` lets pass."""
    w = WIDTHS[decoded.header.version]
    for i, size in enumerate(inner_sizes(decoded.header)):
        if size & 3:
            at = decoded.var_at[i + 1] - w.tail.size
            _, vsize, _ = w.tail.unpack_from(data, at)
            if vsize == size:
                text = f"var[{i}].vsize at byte {at + 4} is {vsize}; it should be padded, {pad4(size)}."
                yield Finding("warning", at + 4, f"var[{i}].vsize", vsize, text)


def _fill_values(decoded: Decoded) -> Iterator[Finding]:
    for i, var in enumerate(decoded.header.vars):
        for k, attr in enumerate(var.attrs):
            if attr.name == "_FillValue" and (attr.type != var.type or attr.nelems != 1):
                field = f"var[{i}].att[{k}]"
                text = (
                    f"{field}, _FillValue of {var.name!r}, has {attr.nelems} values of {TYPES[attr.type].name}; "
                    f"it should be one of {TYPES[var.type].name}."
                )
                yield Finding("warning", decoded.var_at[i], field, attr.data, text)


def _end(decoded: Decoded, file_size: int) -> Iterator[Finding]:
    """Yield findings about the end of the file, where `decode` is content."""
    header = decoded.header
    end = data_end(header) if header.vars else decoded.nbytes
    text = ""
    if not header.vars and file_size > end:
        text = f"The file has {file_size} bytes, and its header, without variables, ends at byte {end}."
    elif header.vars and 0 < end - file_size <= 3 and not short_data(header, file_size):
        text = f"The file has {file_size} bytes; the padding behind the last value, up to byte {end}, is missing."
    if text:
        yield Finding("warning", file_size, "file_size", file_size, text)
