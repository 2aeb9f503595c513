"""The objects of HDF5 become a header of CDF-5 and back; ``docs/reference/file-format.md`` specifies it.

Knows: h5py's types and objects, NetCDF's conventions. Does not know: bytes of files, requests, ranks.

====================  ==========================================================================================
`tree`                the objects in memory: groups, datasets, scales, which are added, moved and removed here; their
                      order; datasets that are made when somebody asks
`tree_refresh`        a tree takes over what a newly read one says; objects that users hold stay the same
`links`               soft, external and second hard links; named types
`flatten`             from a tree to a header with its markers, or from the header before and what changed since
`unflatten`           from a header to a tree, by its markers (`pnc_vol_hdf5`)
`names`               paths and attribute names as names of NetCDF, and back; the reserved attribute with JSON text
`dimensions`          which dimension each axis of a dataset has; those that a program names
`dtypes`              h5py's special types, references; which NetCDF type and hidden dimensions an element has
`encoding`            values of an element from what users give to arrays for the file, and back
`composite`           types that take several variables: compounds, arrays of varying length, references; as JSON text
`elsewhere`           datasets whose data live elsewhere: their marker, and which elements of a source are asked for
`conventions`         what the element of a variable or attribute means: NetCDF's conventions, then our marker's type
`describe`            data types as JSON, for markers
`attributes`          attributes of one object: as the bytes of the header, decoded when they are asked for
`attribute_encoding`  one attribute value: from what a user gives to a row of values in the header, and back
`attribute_owners`    attributes of groups and named types among those of the file
====================  ==========================================================================================
"""
