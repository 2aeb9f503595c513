"""Results are shown as a table, as JSON and as a picture.

Knows: `Result`. Does not know: where it came from. matplotlib is loaded when a picture is asked for.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from pnc_vol.bench.measure import US, Result
from pnc_vol.system import REAL

__all__ = ["machine", "plot", "print_table", "to_json"]


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    model = platform.processor() or platform.machine()
    try:
        fd = REAL.open("/proc/cpuinfo", os.O_RDONLY)
        buffer = bytearray(4096)
        text = bytes(buffer[: REAL.pread_into(fd, buffer, 0)]).decode(errors="replace")
        REAL.close(fd)
        model = next(line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def peers_of(results: Sequence[Result]) -> list[str]:
    """Return all peers, in order of appearance."""
    return list(dict.fromkeys(peer for result in results for peer in [*result.seconds, *result.notes]))


def print_table(results: Sequence[Result]) -> None:
    """Print medians with their range, and the ratio of each peer to pnc_vol in brackets; then memory, bytes and
    requests."""
    peers = peers_of(results)
    seconds = [[_seconds(result, peer) for peer in peers] for result in results]
    _print_columns([["seconds", *peers], *([r.work, *row] for r, row in zip(results, seconds, strict=True))])
    print("\nmedian (fastest-slowest) [peer / pnc_vol: above 1, pnc_vol is faster]\n")
    _print_first(results, peers)
    if any(result.nbytes is not None or result.memory for result in results):
        rows = [
            [_amount(result.nbytes), f"{result.requests or '-':,}" if result.requests else "-"] for result in results
        ]
        memory = [[_amount(result.memory.get(peer)) for peer in peers] for result in results]
        works = [result.work for result in results]
        head = ["peak memory over the start", "bytes", "requests", *peers]
        _print_columns([head, *([w, *row, *m] for w, row, m in zip(works, rows, memory, strict=True))])
        print()
    for text in _notes(results):
        print(f"- {text}")


def _print_first(results: Sequence[Result], peers: Sequence[str]) -> None:
    """The first round of what many ranks did: in it connections and buffers are made, as in a job that writes once."""
    shown = [r for r in results if r.quickest and max(map(len, r.seconds.values())) > 1]
    if not shown:
        return
    rows = []
    for r in shown:
        ours, cells = r.first(US), []
        for peer in peers:
            found = r.first(peer)
            ratio = f" [{found / ours:.2f}]" if found is not None and ours and peer != US else ""
            cells.append("-" if found is None else f"{found:.{3 if found >= 0.1 else 4}f}{ratio}")
        rows.append([r.work, *cells])
    _print_columns([["seconds, first round alone", *peers], *rows])
    print()


def _notes(results: Sequence[Result]) -> list[str]:
    """Return what was left out and why; a note that all works have stands once."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for peer, reason in result.notes.items():
            found.setdefault((peer, reason), []).append(result.work)
    return [
        f"{peer}: {reason}" if len(works) == len(results) else f"{peer}, {'; '.join(works)}: {reason}"
        for (peer, reason), works in found.items()
    ]


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        first, *rest = (
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *rest]).rstrip())


def _seconds(result: Result, peer: str) -> str:
    median = result.median(peer)
    if median is None:
        return "-"
    found = result.seconds[peer]
    digits = 3 if median >= 0.1 else 4
    text = f"{median:.{digits}f} ({min(found):.{digits}f}-{max(found):.{digits}f})"
    ratio = result.ratio(peer)
    return text if peer == US or ratio is None else f"{text} [{ratio:.2f}]"


def _amount(nbytes: int | None) -> str:
    if nbytes is None:
        return "-"
    return f"{nbytes / (1 << 20):.1f} MiB" if nbytes >= 1 << 17 else f"{nbytes / 1024:.1f} KiB"


def to_json(results: Sequence[Result], more: Mapping[str, Any] | None = None) -> str:
    """Return all that was measured, for programs; seconds and bytes."""
    rows = [
        {
            "work": r.work,
            "bytes": r.nbytes,
            "requests": r.requests,
            "seconds": r.seconds,
            "memory": r.memory,
            "notes": r.notes,
            **({"quickest_rank": r.quickest} if r.quickest else {}),
        }
        for r in results
    ]
    return json.dumps({"machine": machine(), **(more or {}), "results": rows}, indent=1)


def plot(results: Sequence[Result], path: str, title: str) -> None:
    """Plot the seconds of each work, one bar a peer with its range, on a logarithmic axis.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    shown = [result for result in results if any(result.seconds.values())]
    peers = [peer for peer in peers_of(shown) if any(result.seconds.get(peer) for result in shown)]
    height = 0.8 / max(1, len(peers))
    figure = Figure(figsize=(9, 1.2 + len(shown) * (0.25 + 0.16 * len(peers))), layout="constrained")
    axes = figure.subplots()
    for i, peer in enumerate(peers):
        at = [(j, r) for j, r in enumerate(shown) if r.seconds.get(peer)]
        middle = [r.median(peer) or 0.0 for _, r in at]
        low = [m - min(r.seconds[peer]) for m, (_, r) in zip(middle, at, strict=True)]
        high = [max(r.seconds[peer]) - m for m, (_, r) in zip(middle, at, strict=True)]
        places = [j + (i - (len(peers) - 1) / 2) * height for j, _ in at]
        bars = axes.barh(
            places, middle, height * 0.92, label=peer, color=f"C{i}", xerr=[low, high],
            error_kw={"elinewidth": 0.8, "ecolor": "0.3"},
        )  # fmt: skip
        axes.bar_label(bars, [f"{m:.3g}" for m in middle], padding=4, fontsize=7)
    axes.set_yticks(range(len(shown)), [result.work for result in shown])
    axes.set_ylim(len(shown) - 0.45, -0.55)
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_xlabel("seconds (median; lines: fastest to slowest); shorter is better")
    axes.grid(axis="x", which="major", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=min(4, len(peers)), frameon=False)
    about = machine()
    axes.set_title(f"{title}\n{about['cpu']}, {about['cores']} cores", fontsize=10, loc="left")
    figure.savefig(path, dpi=120)
