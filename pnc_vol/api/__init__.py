"""This room has the objects that users see: h5py's, over a session.

===================  ==============================================================================
`file`               `File`, which may turn out to be h5py's; `arguments`: its arguments, checked; `opening`: a file is
                     opened; `hints`: the hints in force and what set them
`group`              `Group`; `creating`: ``create_dataset`` and its relatives; `copying`: ``copy``, with
                     `copied_references`, `copying_hdf5`; `paths`: from a name to an object; `linking`: links
`dataset`            `Dataset`; `posting`: iput, iget; `converting`: astype, asstr, fields, read_direct, with `views`;
                     `regions`: references to elements; `blocks`: rare kinds of index, `MultiBlockSlice`
`dataset_plan`       the checks of ``create_dataset``; `fill_values`; `ignored_options`: chunks and filters, which CDF
                     does not have; `filters`: ``h5py.filters``; `refusals`: why something cannot be stored
`attrs`              `AttributeManager`; `scale_attrs`: the attributes that HDF5 keeps for dimension scales
`dims`               labels and dimension scales of axes
`objects`            what all objects have in common, `Datatype`, link classes; `mappings`: keys, values, visits;
                     `pickling`: objects of files that are read travel to other processes
`ids`                ``obj.id``; `storage_info`: its answers about type, space and creation properties
`display`            what notebooks show of objects, and ``tree``
`module`             is_hdf5, get_config, version; `hdf5_drivers`: register_driver
`virtual`            VirtualLayout, and datasets whose data live elsewhere: `elsewhere_ids`, `virtual_data`, `raw_files`
`hdf5_files`         HDF5 files that are opened for reading as they are
`patching`           ``patch()``; `lowlevel`: the modules of h5py that it provides, and their numbers
`file_options`       the options of `File` for type checkers
===================  ==============================================================================

Knows: the tree, the session. Does not know: headers, bytes, how a request is carried out.

Rules
-----
1. h5py 3.16 is the model: same names, same builtin exceptions, same reprs; the tests run one script on both.
2. A change of definitions: check that the file is open, then everything else, then that it is writable; then change
   the tree and touch it.
3. Public methods take the session's lock, but for reads, which ask `Session.reading`.
"""
