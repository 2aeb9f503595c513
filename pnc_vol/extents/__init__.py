"""Indices become byte ranges: which elements ``ds[...]`` names, and where these are.

Knows: shapes, integers, numpy. Does not know: variables' names, types, files.

===============  ===============================================================================================
`model`          selections of elements, runs of elements, extents of bytes; counting without a loop
`selection`      what stands between the brackets of ``ds[...]``: h5py's indexing
`subarrays`      lists of blocks of one dataset (PnetCDF's varn), flattened to runs
`decomposition`  lists of blocks that come again are checked and flattened once
`place`          from indices to runs, without a selection where they are few, and from runs to extents
`merge`          extents and runs made few, disjoint and sorted; the last write wins
`blocks`         lists of extents, runs, arrays and writes cut into rounds, blocks and parts
===============  ===============================================================================================
"""
