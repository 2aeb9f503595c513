"""h5py's objects over NetCDF CDF-5 files."""

__version__ = "0.1.0"
