"""A node-local write cache: writes go to a fast local file, and threads carry them to the global file meanwhile.

===================  ================================================================================================
`hints`              the hints of the cache: E10's words and ours, and the options of ``driver="cache(...) | posix"``
===================  ================================================================================================
"""
