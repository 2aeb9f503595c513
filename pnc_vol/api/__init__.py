"""This room has the objects that users see: h5py's, over a session.

===================  ==============================================================================
`file`               `File`, which may turn out to be h5py's, and its options for type checkers; `opening`: arguments
                     are checked and a file is opened, by its name or by a pickle of an object that is read;
                     register_driver; `hints`: the hints in force and what set them
`group`              `Group`; `creating`: ``create_dataset`` and its relatives; `copying`: ``copy``; `paths`: from a
                     name to an object; `linking`: links, which are no object's own place
`dataset`            `Dataset`; `posting`: iput, iget; `views`: astype, asstr, fields, read_direct; `regions`: rare
                     kinds of index, `MultiBlockSlice`, references to elements
`dataset_plan`       the checks of ``create_dataset``; fill values; why something cannot be stored; `filters`: chunks
                     and filters, which CDF does not have, and ``h5py.filters``
`attrs`              `AttributeManager`; `scale_attrs`: the attributes that HDF5 keeps for dimension scales
`dims`               labels and dimension scales of axes
`objects`            what all objects have in common, `Datatype`, link classes; `mappings`: keys, values, visits
`ids`                `Handle`: one opening of a file: is it open, may it write; ``obj.id``; `storage_info`: its answers
                     about type, space and creation properties
`display`            what notebooks show of objects, and ``tree``
`module`             is_hdf5, get_config, version
`virtual`            VirtualLayout, and datasets whose data live elsewhere: `virtual_data` (with their id), `raw_files`
`hdf5_files`         HDF5 files that are opened for reading as they are
`patching`           ``patch()``, the modules of h5py that it provides, and their numbers
===================  ==============================================================================

Knows: the tree, the session. Does not know: headers, bytes, how a request is carried out.

Rules
-----
1. h5py 3.16 is the model: same names, same builtin exceptions, same reprs; the tests run one script on both.
2. A change of definitions: check that the file is open, then everything else, then that it is writable; then change
   the tree and touch it.
3. Public methods take the session's lock, but for reads, which ask `Session.reading`.
"""
