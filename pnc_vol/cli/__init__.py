"""The command ``pnc-vol``: one module per verb.

==============  =================================================================================
`main`          the entry point; says which extra to install if typer is missing
`app`           the table of verbs; each is loaded when it is asked for
`show`          safe text, errors in one line, exit codes; `shared_options`: options of several verbs
`convert`       the verb: HDF5 to NetCDF and back
`dump`          the verb: a file as CDL, with `cdl`: CDL as ncdump prints it
`ls`            the verb: the tree of a file
`check`         the verb: a file against the format
`diff`          the verb: two files compared, with `comparing`: what differs
`repack`        the verb: space given back
`link`          the verb: an HDF5 file that shows the values of a NetCDF file
`refs`          the verb: references by which zarr programs read a NetCDF file
`log`           the verb: burst-buffer logs printed
`replay`        the verb: burst-buffer logs written into their file
`run`           the verb: a script with pnc_vol in the place of h5py; ``children/`` for the processes it starts
`plan`          the verb: what each flush of a script writes, with `dry_run`: on copies of the files
`profile`       the verb: where the time of collective writes went, from timelines
`doctor`        the verb: versions, options, the file system
`view`          the verb: files in a browser
`demo`          the verb: an example from HDF5 to NetCDF and back
`classic_file`  headers and values read straight from a classic file
==============  =================================================================================

A module of a verb imports at its top what the verb needs; ``pnc-vol --help`` imports none of them.
"""
