"""``pnc-vol view`` shows files in a browser.

==============  =================================================================================
`server`        the HTTP server on the loopback address: token, host, routes, the page, values as CSV; open files
`objects`       objects of either library, as h5grove's content classes read them
`coordinates`   the axes of a dataset, its values without scale and fill, as CF has it
==============  =================================================================================

The page in ``static/`` is h5web, built by ``tools/viewer``. What it asks for is answered by h5grove's content classes.
Nothing here is loaded but by the verb: it needs the extra ``view``.
"""
