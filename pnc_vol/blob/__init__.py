"""A blob is what one process owns of a variable: it lies in one piece, in one subfile for each node.

======================  ========================================================================================
`maps`                  which elements each blob of a subfile holds, and the variables of the subfile that say so
`header`                the header of a subfile from the canonical one, and back; what a subfile holds
`index`                 `ElementIndex`: in which subfile, and where in it, each element of one map is
`layout`                `BlobLayout`: what is known of the subfiles of an open set; where every variable is;
                        `BlobPlace`: from runs of canonical elements to byte extents at addresses
`names`                 the names of subfiles; a new set takes those of an older one in one step
`set_opening`           a set is found by its name, a pattern or a subfile, and opened or created on all ranks
`set_headers`           what the headers of a set say, all together
`subfile_set`           the subfiles of an open set: a session for each, a flush of all
`set_driver`            addresses over the drivers of subfiles
`map_agreement`         which decomposition map each variable of a set gets, from what ranks posted
`physical_definitions`  what is defined in a subfile
`replay`                replays a set into one file: coverage, the header, the report
`gathering`             copies values from blobs to the places of the canonical layout
`hdf5/`                 the other form of subfiles: HDF5 files of two datasets of bytes, written at the close
======================  ========================================================================================

A plug-in: nothing of the core imports it (`pnc_vol.plugins`).
"""
