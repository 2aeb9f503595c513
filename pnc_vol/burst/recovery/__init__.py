"""Logs that killed jobs left are checked and replayed into files.

===============  =====================================================================================
module           what it does
===============  =====================================================================================
`sources`        opens the files of a log for reading, with a lock against its writer and other replays
`ownership`      decides whether a log belongs to a file: identities and headers
`scan`           the recovery scan: which entries are committed, in which order they are replayed; those behind the
                 last commit record, which a kill left without one
`entry_rows`     very many entries at once as rows of the queue, whose bytes stay in the log until they are written
`redo`           finds or makes the dataset that each definition means, and posts the entries of all ranks again,
                 but for those of deleted datasets
`replay`         replays logs into a file: refusals, order of jobs, the report
`printing`       a log as text
===============  =====================================================================================

Knows: logs, open files. Does not know: how a log is written while its job runs (`pnc_vol.burst`).
"""
