"""Other formats and tools: what converts between them and NetCDF files, and what examines or rewrites NetCDF files.

==================  =============================================================================
`hdf5`              ``convert``, `open_either`: HDF5 files to NetCDF files and back
`transfer`          the objects of one open file copied into another, with `copied_values`: their values
`references`        references of one file as references of the other
`writing_hdf5`      values written to HDF5 exactly as they are
`inspect_hdf5`      questions about objects of h5py or of ours
`other_files`       which values of an HDF5 file are in other files
`space`             the size that a file declares, against what it holds and what there is room for
`notes`, `report`   what a conversion reports
`link`              ``link``: an HDF5 file that shows the values of a NetCDF file, with `link_state`: is it stale
`zarr_refs`         references to chunks of a NetCDF file, for zarr
`map_files`         E3SM-IO's decomposition maps, read on one rank and dealt to all
`checking`          ``check``: a file against the format and its own markers
`readers`           which programs read a file
`repack`            ``repack``: a file without unused space
`rewriting`         a file that takes its name when it is whole
==================  =============================================================================

h5py is imported when an HDF5 file is opened or written, never before.
"""
