"""Posted requests become writes: the plan, its execution, and how ranks write together.

Knows: batches, layouts, drivers, a communicator. Does not know: names, headers in the file, users' objects.

====================  ==========================================================================================
`execute`             the merged extents of a flush; writing them; which request failed when a write does
`stream`              large writes and reads in blocks, conversion and system calls in two threads
`agree`               what ranks exchange at a flush, and which way they write or read together
`failures`             which requests failed, and the error that says so
`differences`         which definitions differ between ranks, for the message
`transport`           how they do it: each alone, by MPI-IO's collective calls, or two-phase
====================  ==========================================================================================
"""
