"""Peers do the same work with pnc_vol and other libraries, alternating: ``python -m pnc_vol.bench NAME``.

================  =================================================================================
`measure`         the runner: peers in turns, medians, ratios, peak memory; in one process and on many ranks
`peers`           one interface to all libraries, in one process and on many ranks
`io`              `io`: arrays, rows, small pieces, many variables; `reads`: parts of arrays;
                  `conversion`: netCDF-4 and HDF5 files to CDF-5
`posts`           `posts`: small writes of each kind, recovery; `burst`: posts to logs on devices
`small`           `small` files, `records` that grow together, many `objects`
`coll_perf`       a 3-D array in blocks
`ior`             segments, blocks and transfers
`flash`           checkpoint and plotfiles of an adaptive mesh
`cached`          the last three with a node-local cache: a file in each cycle, then computing
`e3sm`            climate variables on unstructured maps, and E3SM-IO's own program beside
`e3sm_cases`      the variables and maps of E3SM-IO's cases
`create`          objects created by each rank for itself
`remote`          columns of a variable behind a web server that is far away; threads that read one file
`range_server`    that web server: it sends ranges of files, slowly or wrongly if that is asked for
================  =================================================================================

`tools/scale` plans the flushes of large published runs; it needs no ranks, and is not in the package.

No result is asserted anywhere: machines differ. What is written is read back and compared, always.
"""
