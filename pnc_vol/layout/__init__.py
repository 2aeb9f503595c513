"""A layout says where the elements of a variable are in a file.

| module | what it does |
|---|---|
| `base` | what every layout answers (`Layout`), and from runs of elements to byte extents (`ElementMap`, `Place`) |
| `canonical` | `CanonicalLayout`: all data in the file with the header, as the NetCDF classic format has it |
| `registry` | the names that ``layout=`` takes, and the entry points of other packages |
| `subfiles` | `Subfiles`: several files below one space of addresses |
"""
