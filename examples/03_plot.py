"""Plots what 03_heat_mpi.py wrote; xarray reads the file, pnc_vol is not needed.

python examples/03_plot.py heat.nc heat.png
"""

import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

matplotlib.use("Agg")
if len(sys.argv) != 3:
    sys.exit("usage: python examples/03_plot.py heat.nc heat.png (examples/03_heat_mpi.py writes heat.nc)")
source, picture = sys.argv[1:3]

with xr.open_dataset(source, engine="netcdf4") as data:
    u = data["u"]
    seconds = ((data["time"] - data["time"][0]) / np.timedelta64(1, "s")).values
    last = u.sizes["time"] - 1
    # Heat spreads fast at first.
    moments = np.unique([0, last // 10, last // 4, last])
    fig, axes = plt.subplots(1, len(moments) + 1, figsize=(3.2 * (len(moments) + 1), 3.1), layout="constrained")
    for ax, i in zip(axes, moments, strict=False):
        drawn = ax.pcolormesh(data["x"], data["y"], u[i], cmap="inferno", vmin=0, vmax=100)
        ax.set(title=f"t = {seconds[i]:.4f} s", aspect="equal", xlabel="x")
    axes[0].set_ylabel("y")
    fig.colorbar(drawn, ax=axes[:-1], label=f"{u.attrs['long_name']} ({u.attrs['units']})", shrink=0.85)
    middle = u.sel(y=0.65, method="nearest")
    for i in moments:
        axes[-1].plot(data["x"], middle[i], label=f"t = {seconds[i]:.4f} s")
    axes[-1].set(title="along y = 0.65", xlabel="x", ylabel=u.attrs["units"])
    axes[-1].legend(fontsize="small")
    fig.suptitle(f"{data.attrs['title']}, {u.sizes['time']} records")
    fig.savefig(picture, dpi=110)
print(f"{picture}: {len(moments)} of {u.sizes['time']} records")
