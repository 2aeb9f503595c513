"""Peers do the same work with pnc_vol and other libraries, alternating: ``python -m pnc_vol.bench NAME``.

===============  ==================================================================================
`measure`        the runner: peers in turns, medians, ratios, peak memory; in one process and on ranks
`peers`          one interface to all libraries, in one process and on many ranks
`io`             arrays, rows, small pieces, many variables
`reads`          parts of arrays; record variables
`posts`          small writes of each kind, recovery
`burst`          posts to logs on devices
`small`          small files, a script, a flush in each step
`records`        record variables that grow together
`objects`        many variables with attributes
`conversion`     netCDF-4 and HDF5 files to CDF-5
`remote`         columns behind a web server that is far away; threads that read one file
`range_server`   that web server: it sends ranges of files, slowly or wrongly if that is asked for
`coll_perf`      a 3-D array in blocks
`ior`            segments, blocks and transfers
`flash`          checkpoint and plotfiles of an adaptive mesh
`cached`         the last three with a node-local cache: a file in each cycle, then computing
`e3sm`           climate variables on unstructured maps
`e3sm_cases`     the variables and maps of E3SM-IO's cases
`create`         objects created by each rank for itself
===============  ==================================================================================

A benchmark is a module with a function ``main(job)``, and is named in `__main__`; one of many ranks has also
``arguments``. `records` is the shortest of one process, `create` of many ranks: copy one of them.

`tools/scale` plans the flushes of large published runs; it needs no ranks, and is not in the package.

No result is asserted anywhere: machines differ. What is written is read back and compared, always.
"""
