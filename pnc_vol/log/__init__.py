"""The burst-buffer log: posted writes kept in two files on fast local storage, and what a crash leaves of them.

==========  =====================================================================================
`layout`    the bytes of a metadata log as it is written here: header and entries
`entries`   many entries as columns; which of them can be believed
`reading`   the bytes of a log to a `Log`, whoever wrote it
`companion` commit records beside the two logs: what is whole, cancelled, or in the file already
`judging`   a log and its companion to a verdict: which entries are to be replayed, in which order
`printing`  a log as text
==========  =====================================================================================

These six are a codec: bytes in, objects out, no files. ``docs/reference/log-format.md`` has the tables of bytes.
"""
