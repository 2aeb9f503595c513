"""E3SM-IO's HDF5 blobs are two datasets of bytes in an HDF5 file: the header, and the elements of each process.

Knows: headers, maps, the container, byte orders. Does not know: ranks, requests.

=============  ==========================================================================================
`container`    the HDF5 file around the two datasets: made and searched by h5py, without their bytes
`swapped`      `SwappedDriver`: big-endian elements above, elements in the byte order of the container below
`parts`        `Parts`: where the part of a variable in each blob begins, from the maps or from ``/data_blob``
`layout`       `Hdf5BlobLayout`: the variables of a set, and from runs of their elements to byte extents
`file_set`     creates a set of HDF5 subfiles, or opens it for reading; all is written at the close
`subfile`      `Hdf5Subfile`: one that exists, read with all checks, or one that is going to be written; its header
=============  ==========================================================================================
"""
