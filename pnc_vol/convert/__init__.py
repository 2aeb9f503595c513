"""This room converts between NetCDF files and other formats, and examines or rewrites NetCDF files.

==================  =============================================================================
`hdf5`              ``convert``: HDF5 files to NetCDF files and back
`either`            a file opened for reading, whichever format it has
`transfer`          the objects of one open file copied into another, with `copied_values`: their values
`references`        references of one file as references of the other
`inspect_hdf5`      questions about objects of h5py or of ours
`declared_size`     refuses what is too large: the size that a file declares, what it holds, the room; its first bytes
`report`            what a conversion reports
`link`              ``link``: an HDF5 file that shows the values of a NetCDF file, with `link_state`: is it stale
`zarr_refs`         references to chunks of a NetCDF file, for zarr
`map_files`         E3SM-IO's decomposition maps, read on one rank and dealt to all
`checking`          ``check``: a file against the format, its own markers, and the programs that read it
`repack`            ``repack``: a file without unused space; datasets with values elsewhere made ordinary ones
`new_files`         a new file takes its name when it is whole
==================  =============================================================================

h5py is imported when an HDF5 file is opened or written, never before.
"""
