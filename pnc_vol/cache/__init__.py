"""A node-local write cache takes writes in a fast local file, and threads carry them to the global file meanwhile.

===================  ================================================================================================
`wrapper`            the driver `CacheDriver`: the verbs
`held_bytes`         what a process holds: to the cache, held for `release`, or through to the file; trouble
`hints`              the hints of the cache: E10's words and ours, and the options of ``driver="cache(...) | posix"``
`local_store`        what a process keeps on its node: the next two, and the order in which they are written
`cache_file`         the cache file: sparse, with the offsets of the global file
`job_caches`         where the ranks of a job have their caches of a file
`extent_log`         the log beside it: which extents are to be carried, and the headers that are held back
`cache_log`          reading that log: what of a cache file is not known to be in the global file
`queues`             the three queues, epochs, and what follows when an epoch is released
`sync_threads`       the threads that empty them, and what becomes of their errors
`global_file`        how bytes get from the cache file to the global file
`overlay`            a read: what is held on this node, laid over what the file has
`node_peers`         the caches of the other ranks of the node, as their logs tell of them
`locks`              coherent mode: byte-range locks on what is not in the global file yet
`watch`              counts, seconds, and the observers of phases
`leftovers`          what is done about caches that a job left, when their file is opened
`folders`            finds the caches of a file; refuses those that must not be carried to it
`recovery`           carries what the caches of killed jobs hold to their file
===================  ================================================================================================

A plug-in: nothing of the core imports it (`pnc_vol.plugins`).
"""
