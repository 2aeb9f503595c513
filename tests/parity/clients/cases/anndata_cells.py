"""anndata: a matrix of counts with tables of its rows and columns, to a file and back.

python anndata_cells.py FILE CELLS
"""

import sys

import anndata
import numpy as np
import pandas as pd
import scipy.sparse as ss

path, cells = sys.argv[1], int(sys.argv[2])
anndata.settings.allow_write_nullable_strings = True
rng = np.random.default_rng(1)
counts = ss.random(cells, 2000, 0.05, "csr", dtype="f4", random_state=2)
made = anndata.AnnData(
    X=counts,
    obs=pd.DataFrame(
        {"kind": pd.Categorical(rng.choice(["a", "b", "c"], cells)), "depth": rng.random(cells)},
        index=[f"cell{i}" for i in range(cells)],
    ),
    var=pd.DataFrame({"length": rng.integers(1, 9, 2000)}, index=[f"gene{i}" for i in range(2000)]),
    obsm={"pca": rng.random((cells, 50))},
    uns={"title": "a case study"},
)
made.write_h5ad(path)
found = anndata.read_h5ad(path)
print(found.shape, found.X.nnz, repr(found.X.sum()), repr(found.obsm["pca"].sum()), found.uns["title"])
print(found.obs["kind"].value_counts().sort_index().to_dict(), found.obs.index[-1], found.var["length"].sum())
