"""Where the elements of a variable are in a file.

| module | what it does |
|---|---|
| `base` | `Layout`: what every layout answers, what it declares, and the layout in force |
| `blob/` | what each process owns in one piece, in subfiles |
| `canonical` | `CanonicalLayout`: all data in the file with the header, as the NetCDF classic format has it |
| `early_places` | places that variables get before the flush that puts them in the header |
| `hdf5blob/` | the same in an HDF5 file of two datasets of bytes |
| `places` | `ElementMap` and its affine form, `Place`: from runs of elements to byte extents |
| `registry` | the names that ``layout=`` takes, and the entry points of other packages |
| `subfiles` | `Subfiles`: several files below one space of addresses |
"""
