"""anndata: annotated matrices to ``.h5ad`` and back, in memory, backed, and growing on disk."""

import anndata
import h5py
import numpy as np
import pandas as pd
import scipy.sparse as ss
from anndata.io import read_elem, sparse_dataset, write_elem

anndata.settings.allow_write_nullable_strings = True


def matrix() -> anndata.AnnData:
    rng = np.random.default_rng(3)
    obs = pd.DataFrame(
        {
            "kind": pd.Categorical(["b", "a", "b", "c"], categories=["a", "b", "c"]),
            "ordered": pd.Categorical([1, 2, 1, 2], ordered=True),
            "count": np.arange(4),
            "score": [0.5, np.nan, 1.5, 2.5],
            "good": [True, False, True, True],
            "maybe": pd.array([True, None, False, True], dtype="boolean"),
            "number": pd.array([1, None, 3, 4], dtype="Int32"),
            "text": ["x", "yé", "", "long text " * 10],
        },
        index=[f"cell{i}" for i in range(4)],
    )
    sparse = [ss.random(4, 3, 0.5, kind, random_state=seed) for seed, kind in enumerate(("csr", "csc"))]
    return anndata.AnnData(
        X=sparse[0].astype("f4"),
        obs=obs,
        var=pd.DataFrame({"gene": ["g1", "g2", "g3"]}, index=["A", "B", "C"]),
        layers={"dense": rng.random((4, 3)), "csc": sparse[1], "empty": ss.csr_matrix((4, 3))},
        obsm={"pca": rng.random((4, 2)), "frame": pd.DataFrame({"p": [1, 2, 3, 4]}, index=obs.index)},
        varm={"loads": rng.random((3, 2))},
        obsp={"near": ss.eye(4, format="csr")},
        uns={
            "title": "a title",
            "nothing": {},
            "nested": {"deep": {"n": 1, "f": 2.5, "flag": True, "list": ["a", "b"], "none": None}},
            "array": np.arange(6).reshape(2, 3),
            "zero": np.zeros((0, 3)),
            "records": np.array([(1, 2.5), (3, 4.5)], dtype=[("p", "i4"), ("q", "f8")]),
            "strings": np.array(["a", "bb"], dtype=object),
            "colors": np.array(["#fff", "#000"]),
            "a/slash": 3,
        },
    )


def plain(value):
    if hasattr(value, "to_memory"):
        value = value.to_memory()
    if ss.issparse(value):
        return value.format, str(value.dtype), value.toarray().tolist()
    if isinstance(value, pd.DataFrame):
        columns = [(name, str(value[name].dtype), [str(item) for item in value[name]]) for name in value]
        return value.index.tolist(), columns
    if isinstance(value, (h5py.Dataset, np.ndarray)):
        return str(value.dtype), value.shape, value[()].tolist()
    if hasattr(value, "items"):
        return {key: plain(found) for key, found in sorted(value.items()) if key is not None}
    return type(value).__name__, str(value)


def show(data: anndata.AnnData) -> None:
    for name in ("X", "obs", "var", "layers", "obsm", "varm", "obsp", "uns"):
        print(name, plain(getattr(data, name)))
    for name in data.obs.columns:
        if hasattr(data.obs[name], "cat"):
            print(name, data.obs[name].cat.categories.tolist(), data.obs[name].cat.ordered)


for compression in (None, "gzip"):
    matrix().write_h5ad(f"{compression}.h5ad", compression=compression)
    show(anndata.read_h5ad(f"{compression}.h5ad"))

backed = anndata.read_h5ad("None.h5ad", backed="r")
print(backed.isbacked, plain(backed.X[1:3]), plain(backed.X[[0, 2]]), plain(backed.X[:, [1]]))
show(backed)
show(backed[[0, 2], :2].to_memory())
backed.file.close()

backed = anndata.read_h5ad("None.h5ad", backed="r+")
backed.obs["new"] = [1, 2, 3, 4]
backed.write()
backed.file.close()
show(anndata.read_h5ad("None.h5ad"))

anndata.AnnData(X=np.random.default_rng(5).random((6, 5)).astype("f4")).write_h5ad("dense.h5ad")
backed = anndata.read_h5ad("dense.h5ad", backed="r+")
backed.X[1:3, :2] = 7
print(plain(backed[2:4].X), plain(backed.X[:, 1]), plain(backed[[1, 5]].X), plain(backed[[5, 1]].X))
backed.file.close()
show(anndata.read_h5ad("dense.h5ad"))

with h5py.File("grow.h5", "w") as file:
    write_elem(file, "m", ss.random(3, 4, 0.5, "csr", random_state=5))
    growing = sparse_dataset(file["m"])
    growing.append(ss.random(2, 4, 0.5, "csr", random_state=6))
    print(growing.shape, plain(growing[1:5]))
    write_elem(file, "m2", growing)
with h5py.File("grow.h5") as file:
    print(plain(read_elem(file["m"])), plain(read_elem(file["m2"])))
