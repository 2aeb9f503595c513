"""Files are found by their names, locked, made, named, and changed in place by a journal.

=============  ===================================================================================
`stored_file`  what is on disk of an open file: driver, location, header, layout in force
`publish`      `Location`: a new file gets its name; a header takes the place of the old one, with the journal
`journal`      a header that is written in place, so that a kill leaves the old or the new one
`existing`     opening a file that is there, and reading its header; which kind of file it is
`locking`      locks and descriptors of open files
`naming`       which names a file may have
`identity`     what a log names its file by; owner, permissions and attributes that a new layout takes over
=============  ===================================================================================
"""
