"""Blobs: what each process owns of a variable lies in one piece, in one subfile for each node.

Knows: runs, headers, extents, addresses. Does not know: data, ranks.

===========  ===========================================================================================
`maps`       which elements each blob of a subfile holds, and the variables of the subfile that say so
`header`     the header of a subfile from the canonical one
`described`  the canonical header from that of a subfile, and what the subfile holds of it
`index`      `ElementIndex`: in which subfile, and where in it, each element of one map is
`places`     `BlobPlace`: from runs of canonical elements to byte extents at addresses
`layout`     `BlobLayout`: what is known of the subfiles of an open set, and where every variable is
===========  ===========================================================================================
"""
