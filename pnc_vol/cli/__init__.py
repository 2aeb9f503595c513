"""This room is the command ``pnc-vol``.

=============  ==================================================================================
`main`         the entry point: the table of verbs, the overview
`arguments`    command lines of verbs, on argparse; the options that several verbs have
`errors`       errors in one line, the table of their messages, exit codes
`show`         safe text, JSON, progress
`completion`   the Tab key
`convert`      the verbs ``convert`` and ``repack``: a file written anew
`dump`         the verb: a file as CDL, as ncdump prints it
`ls`           the verb: the tree of a file
`check`        the verb: a file against the format
`diff`         the verb: two files compared
`link`         the verbs ``link`` and ``refs``: programs that read HDF5 or zarr read a NetCDF file
`logs`         the verbs ``log`` and ``replay``: burst-buffer logs printed, or written into their file
`run`          the verbs ``run`` and ``plan``: a script with pnc_vol in the place of h5py; ``children/`` for the
               processes it starts
`profile`      the verb: where the time of collective writes went, from timelines
`doctor`       the verb: versions, options, the file system
`view`         the verb: files in a browser
`demo`         the verb: an example from HDF5 to NetCDF and back
=============  ==================================================================================

A module of a verb imports at its top what the verb needs; ``pnc-vol --help`` imports none of them.
"""
