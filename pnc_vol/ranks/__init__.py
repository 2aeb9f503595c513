"""The ranks that share a file exchange little, wait for one another, and fail together.

=============  ===========================================================================================
module         what it does
=============  ===========================================================================================
`comm`         `Comm`: the four verbs of ranks; that of a single process; errors that name ranks, raised on all
`mpi_comm`     the same over an mpi4py communicator; the form in which ranks send each other values
`waiting`      waiting for other ranks with a time limit; ranks that left
`levels`       exchanges in two levels: the ranks of a node, and one rank of each node
`places`       which ranks are on which node; nodes have numbers, no names
=============  ===========================================================================================

Knows: bytes, MPI. Does not know: files.
"""
