"""What users hold: h5py's objects over a session.

===================  ==============================================================================
`file`               `File`; `opening`: the checks of its keywords; `atomic`: ``f.atomic``
`group`              `Group`; `creating`: ``create_dataset`` and its relatives; `copying`: ``copy``, with
                     `referring` for the references in a copy; `paths`: from a name to an object; `linking`: links
`dataset`            `Dataset`; `posting`: iput, iget; `views`: astype, asstr; `fields`: parts of a compound;
                     `regions`: ``regionref``; `blocks`: `MultiBlockSlice`
`create`             the checks of ``create_dataset``; `filling`: fill values of a compound;
                     `ignored_options`: chunks and filters, which CDF does not have; `filters`: ``h5py.filters``
`attrs`              `AttributeManager`; `scale_attrs`: the attributes that HDF5 keeps for dimension scales
`dims`               labels and dimension scales of axes
`objects`            what all objects have in common; `ids`: ``obj.id``; `links`: h5py's link classes; `datatype`
`stored`             answers of ``ds.id``: type, space, creation properties
`explaining`         what an error message adds: the dataset, the value, what to do instead
`module`             is_hdf5, get_config, version; `absent`: register_driver; `virtual`: VirtualLayout
`patching`           ``patch()``; `lowlevel`: the modules of h5py that it provides
`recovery`           ``replay()``
===================  ==============================================================================

Knows: the tree, the session. Does not know: headers, bytes, how a request is carried out.

Rules
-----
1. h5py 3.16 is the model: same names, same builtin exceptions, same reprs; the tests run one script on both.
2. A change of definitions: check that the file is open, then everything else, then that it is writable; then change
   the tree and touch it.
3. Public methods take the session's lock.
"""
