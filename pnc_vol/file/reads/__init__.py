"""A read gives what the file holds, with this rank's own posts laid over it.

How a value gets from the file into the array: a plan says which bytes of the file belong where in the result, steps
carry them there (a look where the driver maps the file, else a call; where ranks read together, the transport), and
numbers are turned round where they lie. Small runs of numbers, which most reads are, go in one call without a plan.

Knows: selections, the layout in force, the queue, drivers. Does not know: how a flush is done.

==================  ============================================================================================
`fetch`             any read: file, fill values, posted writes; lists of runs (masks)
`contiguous`        numbers that are in the file, in few steps: values, rows, columns of up to 4 MiB
`execute`           how all of these are carried out: looks at a mapped file, else calls, straight into the result
`completing`        the completion of posted reads
`gathered`          runs of variables that have a map: long ranges, put in order by an index of the map
`hyperslabs`        regular selections with gaps, large columns too: what lies between is read where that is cheaper
`composite_values`  reads and writes of datasets that take several variables
==================  ============================================================================================
"""
