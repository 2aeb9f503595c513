"""``pnc-vol check`` checks whether files keep to the format, and whether their markers fit.

Knows: exit codes. Does not know: the rules (`convert.checking`).
"""

from __future__ import annotations

from typing import Any

from pnc_vol.cli.arguments import Options, Parser, Verb, add_json
from pnc_vol.cli.errors import TROUBLE, each, expected, fail
from pnc_vol.cli.show import counted, on_disk, painted, print_json, safe
from pnc_vol.convert.checking import READERS, check
from pnc_vol.format.model import Finding

__all__ = ["VERBS"]

#: Findings of one file that are printed.
SHOWN = 100


def _arguments(parser: Parser) -> None:
    parser.files("files", metavar="FILE", help="NetCDF classic files; - is standard input.")
    parser.add_argument(
        "--for", dest="readers", action="append", default=[], metavar="PROGRAM",
        help="Report whether a program can read the files: gdal, scipy...",
    )  # fmt: skip
    parser.flag("-q", "--quiet", help="Print nothing about files that are valid.")
    add_json(parser)


def command(options: Options) -> int:
    """Check files against the format, and whether other programs can read them.

    Exit code: 0 all are valid and readable, 1 some are not, 2 some cannot be read.
    """
    wanted = options.readers
    for name in wanted:
        if name not in READERS:
            fail(name, f"--for: unknown program; known are {', '.join(READERS)}")
    answers: list[dict[str, Any]] = []

    def one(file: str) -> int:
        with expected(file), on_disk(file) as path:
            found = check(path, readers=wanted)
            if options.as_json:
                answers.append(_as_json(file, found, wanted))
            else:
                _print(file, found, wanted, quiet=options.quiet)
            return int(any(finding.severity == "error" or finding.field in wanted for finding in found))

    code = each(options.files, one, code=TROUBLE)
    if options.as_json:
        print_json(answers)
    return code


def _split(found: list[Finding], readers: list[str]) -> tuple[list[Finding], int, dict[str, list[str]]]:
    """Return findings about the format, how many of them are errors, and what keeps each program from reading the
    file."""
    findings = [finding for finding in found if finding.field not in readers]
    errors = sum(finding.severity == "error" for finding in findings)
    asked = () if errors else readers
    return findings, errors, {name: [each.message for each in found if each.field == name] for name in asked}


def _as_json(file: str, found: list[Finding], readers: list[str]) -> dict[str, Any]:
    """Return the findings of one file, for JSON."""
    findings, errors, refused = _split(found, readers)
    return {
        "file": file,
        "valid": not errors,
        "findings": [
            {"severity": each.severity, "offset": each.offset, "field": each.field, "message": each.message}
            for each in findings
        ],
        "for": {name: {"readable": not reasons, "reasons": reasons} for name, reasons in refused.items()},
    }


def _print(file: str, found: list[Finding], readers: list[str], *, quiet: bool) -> None:
    """Print the findings of one file."""
    findings, errors, refused = _split(found, readers)
    for finding in findings[:SHOWN]:
        place = "" if finding.offset < 0 else f"byte {finding.offset}: "
        severity = painted(finding.severity, "red" if finding.severity == "error" else "yellow")
        print(f"{safe(file)}: {severity}: {place}{safe(finding.field)}: {safe(finding.message)}")
    if len(findings) > SHOWN:
        print(f"{safe(file)}: {len(findings) - SHOWN} findings more")
    if errors or not quiet:
        verdict = painted("not valid", "red") if errors else painted("valid", "green")
        print(f"{safe(file)}: {verdict}, {counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}")
    for name, reasons in refused.items():
        for reason in reasons[:SHOWN]:
            print(f"{safe(file)}: for {name}: {safe(reason)}")
        if not reasons and not quiet:
            print(f"{safe(file)}: for {name}: readable")


VERBS: dict[str, Verb] = {"check": (_arguments, command)}
