"""Posted requests become writes: the plan, its execution, and how ranks write together.

Knows: batches, layouts, drivers, a communicator. Does not know: names, headers in the file, users' objects.

====================  ==========================================================================================
`execute`             the merged extents of a flush; writing them, in blocks; which request failed
`agree`               what ranks exchange at a flush, which way they write or read together; the error that names which
                      requests failed, or which definitions differ between ranks
`transport`           how they do it: each alone, by MPI-IO's collective calls, or two-phase
====================  ==========================================================================================
"""
