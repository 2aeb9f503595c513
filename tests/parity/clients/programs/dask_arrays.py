"""dask: arrays stored by threads, and read lazily."""

import dask
import dask.array as da
import h5py

dask.config.set(scheduler="threads", num_workers=4)

whole = da.arange(240, chunks=30).reshape(24, 10).rechunk((5, 4))
half = (whole * 0.5).astype("f4")
da.to_hdf5("several.h5", {"/x": whole, "/g/y": half}, compression="gzip", shuffle=True)
da.to_hdf5("one.h5", "/only", whole % 7, chunks=None)
whole.sum(axis=0).to_hdf5("method.h5", "s")

with h5py.File("several.h5") as file:
    print(sorted(file), file["x"].dtype, file["g/y"].dtype)
    # the chunks of a dataset are not kept in a CDF file
    x = da.from_array(file["x"], chunks=(5, 4))
    y = da.from_array(file["g/y"], chunks=(7, 3))
    locked = da.from_array(file["x"], chunks="auto", lock=True)
    print(x.compute().tolist(), (x.T @ x).compute().tolist(), y[::2, 1:].mean(axis=0).compute().tolist())
    print(x[x > 200].compute().tolist(), (locked + y).sum().compute(), x[[1, 3, 5]].compute().tolist())
    print(da.stack([x, x + 1])[1, 3].compute().tolist(), x[[3, 1, 1]].compute().tolist(), x[5:1:-1, 2].compute())
with h5py.File("store.h5", "w") as file:
    t = file.create_dataset("t", (24, 10), "f8")
    u = file.create_dataset("u", (12, 10), "i8", chunks=(5, 5))
    print(u.chunks, da.from_array(u).chunks)
    da.store([half, whole[::2]], [t, u])
    print(t[...].tolist(), u[-1].tolist())
    part = file.create_dataset("part", (30, 20), "i4")
    da.store(whole + 1, part, regions=(slice(3, 27), slice(0, 20, 2)), compute=False).compute()
    print(part[5].tolist(), part[...].sum())
    kept = da.store(half, file.create_dataset("k", (24, 10), "f4"), return_stored=True)
    print(kept.sum().compute())
for name, path in (("one.h5", "only"), ("method.h5", "s"), ("store.h5", "part")):
    with h5py.File(name) as file:
        print(file[path].dtype, file[path][()].tolist())
