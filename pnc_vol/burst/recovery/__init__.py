"""Recovery: logs and caches that killed jobs left, and sets of subfiles, are checked and replayed into files.

===============  =====================================================================================
module           what it does
===============  =====================================================================================
`leftovers`      finds the logs of killed jobs when a file is opened; replays, removes or reports them
`sources`        opens the files of a log for reading, with a lock against its writer and other replays
`ownership`      decides whether a log belongs to a file: identities and headers
`open_group`     the entries behind the last commit record, which a kill left without one
`scan`           the recovery scan: which entries are committed, in which order they are replayed
`datasets`       finds or makes the dataset that each definition of a log means
`entry_rows`     very many entries at once as rows of the queue, whose bytes stay in the log until they are written
`entry_values`   the values of the other entries as a session takes them; checks that an entry fits
`redo`           posts the entries of all ranks of a job again
`replay`         replays logs into a file: refusals, order of jobs, the report
`printing`       a log as text
`cache_folders`  finds the caches of a file; refuses those that must not be carried to it
`caches`         carries what the node-local caches of killed jobs hold to their file
`blobs`          replays a set of subfiles into one file: coverage, the header, the report
`new_file`       a file that all ranks write, and that takes its name when it is whole
`gathering`      copies values from blobs to the places of the canonical layout
===============  =====================================================================================

Knows: logs, sets of subfiles, open files. Does not know: how a log is written while its job runs (`pnc_vol.burst`).
"""
