"""What a driver declares of itself, so that nobody has to infer it from a name.

Knows: nothing but the words. Does not know: drivers.

Rules
-----
1. A root declares its capabilities as a class attribute: they are known before a file is opened.
2. A wrapper declares them from those of the driver below it (`Wrapper.declares`); what it does not change it passes on.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CALL_COST", "Capabilities"]

CALL_COST = 4096
"""Bytes that are moved in the time that one call takes besides, for a file in the page cache."""


class Capabilities(NamedTuple):
    """What a driver, or a stack of them, can do and needs.

    collective : bool
        Calls with ``collective=True`` are one operation of all ranks, and `open` and `close` are as well: a rank cannot
        open or close the file by itself.
    concurrent : bool
        Several threads gain by being in `read` and `write` at once; never true of a driver that uses MPI.
    mapping : bool
        `look` may succeed: the file's bytes can be read from memory without a copy.
    call_cost : int
        What a call costs besides its bytes, as the number of bytes that move in that time. Small pieces that lie closer
        together than this are read and written together with what lies between them.
    joins_pieces : bool
        Pieces of one `read` that are near each other are read together by the driver itself: who reads need not ask for
        what lies between them.
    holds_back : bool
        Bytes of a `write` may be held back until `end_flush` or `sync`, and are brought to the file in the order that
        `order` asks for. If true, the ranks exchange what `end_flush` and `order` raised.
    keeps_file : bool
        The bytes are in the file of the operating system that `path` names: it is created, locked, replaced and renamed
        by the rules for such files.
    own_paths : bool
        A path is not the name of a file but means something to the driver alone, which is asked whether it `exists`.
        Only without `keeps_file`. If both are false (`memory`), the content at first is that of the file of this name.
    takes_descriptor : bool
        `open` uses ``context.fd``, an open descriptor of the file, instead of opening `path`, and leaves it open. Where
        it does not, the file is opened a second time by its name, and the name is checked again afterwards.

    Examples
    --------
    >>> Capabilities(call_cost=1 << 20, keeps_file=False, own_paths=True).collective
    False
    """

    collective: bool = False
    concurrent: bool = False
    mapping: bool = False
    call_cost: int = CALL_COST
    joins_pieces: bool = False
    holds_back: bool = False
    keeps_file: bool = True
    own_paths: bool = False
    takes_descriptor: bool = False
