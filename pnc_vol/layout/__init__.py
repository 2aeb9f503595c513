"""Where the elements of a variable are in a file.

| module | what it does |
|---|---|
| `base` | `Layout`: what every layout answers, what it declares, and the layout in force |
| `canonical` | `CanonicalLayout`: all data in the file with the header, as the NetCDF classic format has it |
| `places` | `ElementMap` and its affine form, `Place`: from runs of elements to byte extents |
| `registry` | the names that ``layout=`` takes, and the entry points of other packages |
| `subfiles` | `Subfiles`: several files below one space of addresses |
"""
