"""Other people's formats: what turns them into ours and back.

Each module is one neighbour: `hdf5` converts files. Nothing of them is imported before it is asked for.
"""
