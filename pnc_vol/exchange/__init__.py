"""Ranks write and read together in two phases: bytes go to few ranks, which make few large calls.

====================  ==========================================================================================
module                what it does
====================  ==========================================================================================
`two_phase`           small pieces of many ranks, written or read by few ranks in few large calls
`window_rounds`       the rounds of one collective write or read
`node_parcels`        what ranks of one node give to, or want of, aggregators of other nodes
`team`                which ranks are aggregators (`cb_nodes`, `aggrs_per_node`), their memory, their errors
`domains`             which rank writes or reads which part of the file, in which round
`holes`               what no rank gives of the part of the file that all write together
`parcels`             pieces of a window as bytes that one rank gives to another, requests for them and answers
====================  ==========================================================================================

Knows: extents, bytes, ranks, a driver. Does not know: variables, requests.
"""
