"""What third parties and our own tests use: suites, faults, ranks, crashes.

===============  =======================================================================================
module           what it does
===============  =======================================================================================
`driver_suite`   what every driver must do, as tests that a driver's author runs
`failing`        calls that fail inside this package, to test what happens then
`faults`         systems that fail, stop and record, to be passed in place of a `System`
`throttled`      a system with a slow file system in it, whose bandwidth processes share
`holding`        a wrapper driver that holds every write back as long as the protocol allows
`layout_suite`   what every layout must do, as tests that a layout's author runs
`mpi`            run a program on several MPI processes from a test
`range_server`   a web server that sends ranges of files, slowly or wrongly if that is asked for
`store_files`    files with a queue store under test, for `store_suite`
`store_suite`    what every queue store must do, as tests that a store's author runs
`planned_write`  what a collective write costs each of many ranks, by planning it for one after another
`virtual_ranks`  many ranks in one process, for programs that count what a flush of thousands costs
`virtual_mpi`    the MPI library of these
`strategies`     hypothesis strategies for the data of pnc_vol: extents, shapes, types, selections
`crash`          a crash simulator: what kills and power failures leave, compared with what was promised
===============  =======================================================================================

Importing `pnc_vol.testing` loads no test tool: pytest and hypothesis are imported by the modules that need them.
"""
