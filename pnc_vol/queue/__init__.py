"""Promises until a flush: posted requests, the queue they wait in, the plan that carries them out.

==========  =====================================================================================
`request`   the handle that a user holds on to
`batches`   posted bytes and where they wait: in memory, in a spill file, in the user's own array
`queue`     the requests of one file, in the order in which they were posted
`overlay`   what is posted for a variable, laid over what the file holds
`drain`     making room when the queue is full; telling requests what became of them
`placed`    which variables have a place in the file now, and where
`plan`      posted runs of many variables as merged byte extents; prints itself
`carry`     doing a plan, and finding out which request failed when one does
`transport` how ranks write at a flush: each alone, by MPI-IO together, or few for all
`together`  few ranks writing for all; `window`: memory that all of them see
`recognise` what kind of file a file is, by its first bytes
`commit`    how a file comes under its name, and how its header is replaced, so that a kill harms nothing
`agree`     what ranks tell one another at a flush
`header`    what ends a flush: the header, the record count, the file's name and length
`moved`     carrying the data to a new layout, in a copy of the file
`flush`     the order of a flush: agree, move, fill, data, header, record count
`session`   one open file: what `api` talks to
==========  =====================================================================================
"""
