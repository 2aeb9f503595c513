"""Caches that an earlier job left are found when their file is opened; the module is small, as it is always loaded.

Knows: when there may be such caches. Does not know: what is in them (`recovery`).
"""

from __future__ import annotations

from pnc_vol.file.leftovers import Left
from pnc_vol.settings.options import Options
from pnc_vol.system import CACHES_NOTED, exists, is_unnamed, neighbour

__all__ = ["CacheRecovery"]


class CacheRecovery:
    """See `file.leftovers.Recovery`."""

    @staticmethod
    def look_after(path: str, real: str, options: Options, *, writable: bool, replaced: bool) -> None:
        noted = neighbour(real, CACHES_NOTED)
        if options.hints.get("e10_cache_path") or is_unnamed(real) or exists(options.system, noted):
            from pnc_vol.cache.recovery import look_after_caches

            look_after_caches(real, options, writable=writable, replaced=replaced)

    @staticmethod
    def left(real: str, options: Options) -> list[Left]:
        from pnc_vol.cache.folders import find_caches, sort_folders

        own = sort_folders(options.system, real, find_caches(options.system, real, options).gone).own
        return [Left(folder, "caches") for folder in own]
