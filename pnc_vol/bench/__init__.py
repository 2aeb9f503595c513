"""The same work done by pnc_vol and by its peers, in one process, alternating: ``python -m pnc_vol.bench NAME``.

=========  ==========================================================================================
`measure`  rounds, medians, ratios, the table
`io`       large variables, rows, many small variables: written and read back
=========  ==========================================================================================
"""
