"""E3SM-IO's HDF5 blobs are two datasets of bytes in an HDF5 file: the header, and the elements of each process.

Knows: headers, maps, the container, byte orders. Does not know: ranks, requests.

=============  ==========================================================================================
`container`    the HDF5 file around the two datasets: made and searched by h5py, without their bytes
`data_blob`    `BlobParts`: where the part of a variable in each blob begins, from the maps or from ``/data_blob``;
               `SwappedDriver` reads big-endian elements where the file has little-endian ones
`subfile`      `Hdf5Subfile`: one that exists, read with all checks; its header; `Hdf5Form`: all of a set; `wrap`: an
               HDF5 file is written around the blobs of a NetCDF subfile
=============  ==========================================================================================
"""
