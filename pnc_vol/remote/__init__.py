"""Files under addresses (``https://``, ``s3://``, ...) are read in byte ranges through fsspec.

===============  =====================================================================================
`driver`         `RemoteDriver`, the root of the stack: extents from blocks, which threads share in a cache; `Address`:
                 what fsspec is asked, what its errors mean, what is tried again; how much is read beside what is asked
                 for (blocks, gaps between pieces)
===============  =====================================================================================

A plug-in: nothing of the core imports it (`pnc_vol.plugins`). Knows: byte ranges. Does not know: headers, variables.
"""
