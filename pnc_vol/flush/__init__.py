"""From posted requests to writes: the plan, its execution, and how ranks write together.

Knows: batches, layouts, drivers, a communicator. Does not know: names, headers in the file, users' objects.

====================  ==========================================================================================
`plan`                posted runs of many variables as merged byte extents
`execute`             writing what is planned; which request failed when a write does
`stream`              large writes and reads in blocks, conversion and system calls in two threads
`data_sieving`        dense small writes as reads and writes of the blocks that cover them
`agree`               what ranks exchange at a flush
`failures`             which requests failed, and the error that says so
`differences`         which definitions differ between ranks, for the message
`choice`              which way ranks write or read together, and why
`transport`           how they do it: each alone, by MPI-IO's collective calls, or two-phase
`aggregators`         which ranks write and read for others, and with what memory
`domains`             which rank writes or reads which part of the file, in which round
`holes`               what no rank gives of the part of the file that all write together
`parcels`             pieces of a window as bytes that one rank gives to another, requests for them and answers
`team`                who does what in a collective write or read, and what a rank does that fails in it
`node_parcels`        what ranks of one node give to, or want of, aggregators of other nodes
`window_rounds`       the rounds of one collective write or read
`two_phase`           small pieces of many ranks, written or read by few ranks in few large calls
`node_shared_memory`  memory that all ranks of one node share
====================  ==========================================================================================
"""
