"""The queue holds what is posted to a file and not written: requests, and the stores that keep their bytes.

A post becomes rows of five integers (request, first element, elements, address, variable) in one table: one for each
run, or one for a whole list of many runs; a store keeps the bytes.

===================  =============================================================================
`request`            the handle that a user holds on to
`batches`            rows, the table of them, and batches with their bytes (an arena, a spill file, the user's array)
`stores`             where bytes are kept: the protocol of a store, its rows in order, the register of names
`memory`             the memory store: one arena; whether the runs of a post become rows or a list
`spill`              the spill file: what memory does not hold
`queue`              the queue: one store in front, the next ones when it has no room
===================  =============================================================================

The log is a store too, in a room of its own: `pnc_vol.burst`.
"""
