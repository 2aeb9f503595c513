"""The options and hints of a file are in one table: what there is, what is allowed, where a value came from.

=============  ===========================================================================================
module         what it does
=============  ===========================================================================================
`options`      `Options`: keywords, hints and environment variables, checked
`hint_files`   files with hints for files whose paths match
=============  ===========================================================================================
"""
