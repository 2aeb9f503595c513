"""Log files only grow: a reader can check their records, and their files and folders are private to a user.

=================  =======================================================================================
`records`          a file of records of 64 bytes, each with a CRC: written, and read up to the first that is wrong;
                   many CRCs at once; where the bytes of one rank stand in a file that ranks share
`tail`             the end of a file that grows, through a window of memory; private files and the lock of their writer
`private_folders`  the folders of jobs: who may have made them, the notes that say where they are, and what jobs left
=================  =======================================================================================

Knows: bytes, files, folders. Does not know: what a record is about. The burst-buffer log (`pnc_vol.burst`) is made of
these parts; a driver may use them too.
"""
