"""Options and hints of a file: one table of what there is, what is allowed, and where a value came from.

=============  ===========================================================================================
module         what it does
=============  ===========================================================================================
`options`      `Options`: keywords, hints and environment variables, checked
`hint_files`   files with hints for files whose paths match
=============  ===========================================================================================
"""
