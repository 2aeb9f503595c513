"""Bytes to header and back: the NetCDF classic format in its versions CDF-1, CDF-2 and CDF-5.

Knows: the format. Does not know: files, MPI, threads, HDF5. From low to high:

- `model`: dimensions, attributes, variables, a header; `names`: which names are legal
- `convert`: values to a file's bytes and back; `types`: the eleven external types
- `widths`: how wide fields are in each version; `sizes`: what follows from a header
- `source`, `decode`: bytes to header; `rules`: what its fields mean to each other
- `limits`, `encode`: header to bytes
- `moving`, `placing`: where variables begin, and what moves when definitions change
- `check`: is this a good file?
"""
