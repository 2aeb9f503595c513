"""Drivers: they read and write the bytes of a file. They know extents, not variables.

===============  =====================================================================================================
module           what it does
===============  =====================================================================================================
`base`           the protocol: `Driver`, `Wrapper` for a driver above another driver, what they declare
`holding`        the optional verbs of a driver that holds bytes back: epochs, `release`, `drain`
`stack`          the register of drivers by name; opens a stack
`stack_text`     ``"trace(limit=9) | posix"``: parses the text of a stack, and writes it
`root`           what every root shares: open and closed, threads, counts
`posix`          root: a file of the operating system
`mpio`           root: MPI-IO, a file that the ranks of a communicator share
`memory`         root: bytes in this process's memory
`fileobj`        root: a file-like object of Python
`trace`          wrapper: counts and times every call
`progress`       wrapper, during one flush: tells a function of the user how far the writing is
`staged`         wrapper: a new layout of a file that has no name, until the end of the flush
`descriptor`     a file by its descriptor: used by `posix`, and by `mpio` for the independent calls of one rank
`vectored_io`    from extents to few large calls of `pread` and `pwrite`
`byte_copy`      arithmetic on extents, and copies of many pieces from memory to memory
`block_copy`     copies of files, block by block, with a report of each block
`mmap_guard`     reads a memory-mapped file safely: handles SIGBUS
`mpi_library`    known facts about MPI libraries: their defects, and the meaning of their errors
===============  =====================================================================================================
"""
