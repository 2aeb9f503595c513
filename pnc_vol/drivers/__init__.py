"""Drivers read and write the bytes of a file. They know extents, not variables.

===============  =====================================================================================================
module           what it does
===============  =====================================================================================================
`base`           the protocol: `Driver`, `Wrapper` for a driver above another driver, what they declare
`holding`        the optional verbs of a driver that holds bytes back: epochs, `release`, `drain`
`stack`          the register of drivers by name; opens a stack (`base` parses its text)
`root`           what every root shares: open and closed, threads, counts
`posix`          root: a file of the operating system
`mpio`           root: MPI-IO, a file that the ranks of a communicator share
`memory`         root: bytes in this process's memory
`fileobj`        root: a file-like object of Python
`trace`          wrapper: counts and times every call
`staged`         wrappers of one flush: a new layout of a file that has no name; progress told to the user
`vectored_io`    from extents to few large calls of `pread` and `pwrite`; arithmetic on extents and their bytes
`block_copy`     copies of files, block by block, with a report of each block
`mmap_guard`     reads a memory-mapped file safely: handles SIGBUS
`mpi_library`    known facts about MPI libraries: their defects, and the meaning of their errors
===============  =====================================================================================================
"""
