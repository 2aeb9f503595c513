"""The same work with pnc_vol and other libraries, alternating: ``python -m pnc_vol.bench NAME``.

================  =================================================================================
`measure`         rounds, medians, ratios, peak memory
`table`           results as a table, as JSON, as a picture
`serial`          benchmarks of one process, and their peak memory, in a process of its own
`peers`           libraries in one process, a class for each
`io`              large variables, rows, small pieces, many variables
`reads`           columns, strides, lists, masks, blocks; record variables
`posts`           small writes of each kind; recovery of a log
`records`         record variables that grow together, with flushes
`small`           small files, a script of one dataset, a flush in each step
`conversion`      netCDF-4 and HDF5 files to CDF-5
`objects`         many variables with attributes
`ranks`           benchmarks of many processes: starting them, the slowest one's time
`carriers`        libraries on many ranks: one file, a class for each library
`coll_perf`       a 3-D array in blocks
`ior`             segments, blocks and transfers
`flash`           checkpoint and plotfiles of an adaptive mesh
`cached`          the last three with a node-local cache: a file in each cycle, then computing
`throttled`       a system with a slow file system in it, whose bandwidth processes share
`e3sm`            climate variables on unstructured maps (`e3sm_cases`, `e3sm_maps`, `e3sm_peers`,
                  `e3sm_setup`; `e3sm_c`: the C program; `e3sm_view`: sets of subfiles seen as one file)
`burst`           bursts of posts, with the burst-buffer log and without
`create`          objects created by each rank for itself
`remote`          columns of a variable behind a web server that is far away; threads that read one file
`range_server`    that web server: it sends ranges of files, slowly or wrongly if that is asked for
================  =================================================================================

`tools/scale` plans the flushes of large published runs; it needs no ranks, and is not in the package.

No result is asserted anywhere: machines differ. What is written is read back and compared, always.
"""
