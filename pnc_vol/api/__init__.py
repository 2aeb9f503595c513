"""What users hold: h5py's objects over a session.

=============  ==================================================================================
`file`         `File`, and how long a file stays open; `opening`: what its keywords mean
`group`        `Group`; `creating`: making things; `copying`; `paths`: how a name leads to an object
`dataset`      `Dataset`; `posting`: iput and iget; `storage`: chunks and filters; `views`: astype, asstr
`create`       what ``create_dataset`` accepts; `echo`: options that CDF cannot hold; `blocks`, `filters`
`attrs`        `AttributeManager`
`dims`         labels and scales
`objects`      what all have in common; `ids`: what ``.id`` is; `links`
`module`       is_hdf5, get_config, version, patch; `absent`, `virtual`: what has no use for CDF
=============  ==================================================================================

Knows: the tree, the session. Does not know: headers, bytes, how a request is carried out.

Rules
-----
1. h5py 3.16 is the model: same names, same builtin exceptions, same reprs; the tests run one script on both.
2. A change of definitions: check that the file is open, then everything else, then that it is writable; then change
   the tree and touch it.
3. Public methods take the session's lock.
"""
