"""The queue holds what is posted to a file and not written: requests, and the stores that keep their bytes.

===================  =============================================================================
`request`            the handle that a user holds on to
`batches`            posted rows with their bytes (in an arena, a spill file, the user's array): what a flush writes
`stores`             where bytes are kept: the protocol of a store, its rows in order, the register of names
`memory`             the memory store: one arena
`spill`              the spill file: what memory does not hold
`queue`              the queue: one store in front, the next ones when it has no room
===================  =============================================================================

The log is a store too, in a room of its own: `pnc_vol.burst`.
"""
