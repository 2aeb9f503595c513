"""The hints of a burst buffer, as they are in force.

Knows: PnetCDF's names and words. Does not know: what is done about them.
"""

from __future__ import annotations

from pnc_vol.options import Options

__all__ = ["hints_in_force"]


def hints_in_force(options: Options, parent: str, rounds: int) -> dict[str, str]:
    """What a log goes by.

    Parameters
    ----------
    options : Options
    parent : str, the folder that the job's folder is in.
    rounds : int, bytes that a flush reads at a time.
    """

    def said(flag: bool) -> str:
        return "enable" if flag else "disable"

    return {
        "nc_burst_buf": "enable",
        "nc_burst_buf_dirname": parent,
        "nc_burst_buf_del_on_close": said(options.burst_buf_del_on_close),
        "nc_burst_buf_flush_buffer_size": str(rounds),
        "nc_burst_buf_overwrite": said(options.burst_buf_overwrite),
        "nc_burst_buf_shared_logs": said(options.burst_buf_shared_logs),
        "nc_burst_buf_sync": options.burst_buf_sync,
        "nc_burst_buf_capacity": str(options.burst_buf_capacity),
    }
