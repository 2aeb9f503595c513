"""The burst-buffer log keeps posted writes in files on fast local storage until they are in the file.

===================  =============================================================================
`encoding`           the bytes of a metadata log as it is written here: header and entries
`recent_posts`       small posts that wait in the slot of the commit log until they go to the two logs
`entries`            many entries as columns; which of them are valid
`decoding`           from the bytes of a log to a `Log`, whichever program wrote it
`commit_log`         commit records beside the two logs: what is whole, cancelled, or in the file already;
                     whether the files are as they were written
`definitions`        the lines that define datasets in a log, so that a replay needs no header
-------------------  -----------------------------------------------------------------------------
`files`              the four files of one rank's log, and where the folders of jobs with such logs are
`definition_writer`  which datasets a log has defined, and under which header; how values and entries of one are written
`batch`              parts of a data log as batches of a flush
`store`              the log as a queue store: posting, cancelling, beginning anew
`beginning`          a new log is begun: its folder, which ranks agree on, and the store in it
-------------------  -----------------------------------------------------------------------------
`leftovers`          finds the logs of killed jobs when a file is opened; replays, removes or reports them
`recovery/`          what is done with the logs of a job that was killed
===================  =============================================================================

The first six are a codec: bytes in, objects out, no files. Records with CRCs, files that grow and private folders are
those of `pnc_vol.append_log`. ``docs/reference/log-format.md`` has the tables of bytes.
A plug-in: nothing of the core imports it (`pnc_vol.plugins`).
"""
