"""Authors of drivers, stores and layouts test them with these suites, failing systems, and programs on ranks.

===============  =======================================================================================
module           what it does
===============  =======================================================================================
`driver_suite`   what every driver must do, as tests that a driver's author runs
`store_suite`    what every queue store must do, as tests that a store's author runs
`layout_suite`   what every layout must do, as tests that a layout's author runs
`faults`         systems that fail, stop, record or are slow, to be passed in place of a `System`; calls that fail
`mpi`            run a program on several MPI processes from a test
===============  =======================================================================================

Importing `pnc_vol.testing` loads no test tool: pytest and hypothesis are imported by the modules that need them.
"""
