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
`transport`           how ranks write: each alone, by MPI-IO's collective calls, or two-phase
`aggregators`         which ranks write for others, and with what memory
`domains`             which rank writes which part of the file, in which round
`parcels`             pieces of a window as bytes that one rank gives to another
`team`                who does what in a collective write, and what a rank does that fails in it
`outgoing`            what ranks of one node have for aggregators of other nodes
`two_phase`           small pieces of many ranks, written by few ranks in few large calls
`node_shared_memory`  memory that all ranks of one node share
====================  ==========================================================================================
"""
