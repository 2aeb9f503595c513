"""Bytes become a header and back: the NetCDF classic format in its versions CDF-1, CDF-2 and CDF-5.

Knows: the format. Does not know: files, MPI, threads, HDF5.

========== =====================================================================================================
`model`    dimensions, attributes, variables, a header; external types, widths of fields, shapes and sizes
`numeric`  values to a file's bytes and back; small values in a variable's own type
`source`   the primitives of decoding: bounds, errors, counts, names
`decode`   bytes to a header
`rules`    what fields mean to each other and to the size of the file
`limits`   what may be written in each version, legal names; what a reader takes is in `model`
`encode`   a header to bytes, from those of the header before where that is possible
`placing`  where variables begin; which bytes move where when definitions change
`check`    whether a file is valid: findings with offsets
========== =====================================================================================================
"""
