"""An open file has three parts, and the operations on them are here.

======================  ============================================================================
`definitions`           what is defined: the tree, the headers made of it, and the size limits of the formats
`requests`              what is posted: the queue, posted reads, handles
`posted_reads`          posted reads: small ones in columns, others one by one
`session`               the thin session: the parts, the lock, the ranks; what is on disk is in `disk`
----------------------  ----------------------------------------------------------------------------
`opening`               the steps of an opening, on all ranks and on rank 0: join, open or create
`opening_record`        the record that they fill; the table of its states
`registry`              which files this process has open, whether an opening joins one, and files that nobody closed
`file_sets`             plug-ins that find and open files which consist of several files
`leftovers`             what plug-ins do about what an earlier job left of a file
`combinations`          which options exclude each other
`deferred`              files that are closed later: deferred closes, files that ranks left; times of all files
`driver_stack`          the stack of drivers of a file, a copy or a temporary file
----------------------  ----------------------------------------------------------------------------
`post`                  posting writes: copied, left in the user's array (large `iput`), or in parts past the queue
`reads/`                reading, with this rank's own posts laid over
`resizing`              datasets that get another shape
----------------------  ----------------------------------------------------------------------------
`flushing`              the order of events of a flush, and what each is for a file and for a set of subfiles
`epochs`                what ranks know of bytes that drivers hold back, and when headers follow to the file
`held_ranges`           which bytes ranks may still hold from earlier epochs
`relocation`            a new layout that moves data, in a copy of the file
`filling`               fill values where nobody wrote
`header_update`         header, record count, name and length at the end of a flush
`report`                what a flush did, or would do
----------------------  ----------------------------------------------------------------------------
`refreshing`            a reader takes over what a writer flushed, or goes on in a forked child
`closing`               how a session ends
`open_file`             the session with its verbs: what `api` talks to; how it is made of an opening
======================  ============================================================================
"""
