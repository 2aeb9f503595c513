"""Exceptions can come between any two lines; `done_whole` does what must be done whole all the same.

Knows: exceptions. Does not know: what is interrupted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["done_whole", "is_interruption"]

P = ParamSpec("P")
T = TypeVar("T")


def is_interruption(error: BaseException) -> bool:
    """Return whether an exception can come between any two lines, so that nobody can be prepared for it: Ctrl-C, no
    memory."""
    return isinstance(error, MemoryError) or not isinstance(error, Exception)


def done_whole(act: Callable[P, T]) -> Callable[P, T]:
    """Decorate what changes several things that belong together, and does the same when it is done twice.

    When Ctrl-C or want of memory comes into it, it is done once more, and the exception goes on.

    Examples
    --------
    >>> import contextlib
    >>> lines = []
    >>> @done_whole
    ... def act():
    ...     lines.append("begun")
    ...     if len(lines) == 1:
    ...         raise KeyboardInterrupt
    ...     lines.append("ended")
    >>> with contextlib.suppress(KeyboardInterrupt):
    ...     act()
    >>> lines
    ['begun', 'begun', 'ended']
    """

    @functools.wraps(act)
    def again(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return act(*args, **kwargs)
        except BaseException as error:
            if is_interruption(error):
                act(*args, **kwargs)
            raise

    return again
