"""What must work in an environment with the wheel and numpy alone; run there by .ci/run."""

import importlib.metadata
import importlib.resources
import importlib.util
import subprocess
import sys

import pnc_vol

for name in ("h5py", "mpi4py", "netCDF4", "xarray", "fsspec"):
    assert importlib.util.find_spec(name) is None, f"{name} is here: this tests nothing"
with pnc_vol.File("bare.nc", "w") as f:
    f["x"] = [1.0, 2.0]
with pnc_vol.File("bare.nc") as f:
    assert f["x"][:].tolist() == [1.0, 2.0]
assert pnc_vol.check("bare.nc") == []
assert importlib.metadata.version("pnc-vol") == pnc_vol.__version__
described = importlib.metadata.metadata("pnc-vol").get_payload()
assert "Two commands" in described
assert "](" not in described, "a relative link is dead on a package index"
page = importlib.resources.files("pnc_vol").joinpath("viewer", "static")
assert {"index.html", "app.js", "app.css", "LICENSES.txt"} <= {each.name for each in page.iterdir()}
for words in ([], ["ls", "bare.nc"], ["dump", "bare.nc"], ["check", "bare.nc"]):
    subprocess.run([sys.executable, "-m", "pnc_vol.cli", *words], stdout=subprocess.DEVNULL, check=True)
print("the wheel works with numpy alone")
