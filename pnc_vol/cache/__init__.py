"""A node-local write cache takes writes in a fast local file, and threads carry them to the global file meanwhile.

===================  ================================================================================================
`wrapper`            the driver `CacheDriver`: the verbs
`held_bytes`         what a process holds: to the cache, held for `release`, or through to the file; trouble
`hints`              the hints of the cache, E10's words and ours; caches that a job left, when their file is opened
`local_store`        what a process keeps on its node, in the folder of its job: cache file and log, in their order
`files`              the cache file, sparse, with the offsets of the global file; how its bytes get there
`extent_log`         the log beside it: which extents are to be carried, and the headers that are held back
`sync_threads`       the three queues, epochs, and what follows when an epoch is released; the threads that empty the
                     queues: when they begin, and what becomes of their errors
`overlay`            a read: what is held on this node, also by other ranks, laid over what the file has
`locks`              coherent mode: byte-range locks on what is not in the global file yet
`watch`              counts, seconds, and the observers of phases
`folders`            finds the caches of a file; refuses those that must not be carried to it
`recovery`           carries what the caches of killed jobs hold to their file, headers with a journal
===================  ================================================================================================

A plug-in: nothing of the core imports it (`pnc_vol.plugins`).
"""
