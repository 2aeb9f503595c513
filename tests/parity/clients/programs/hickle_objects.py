"""hickle: Python's objects to HDF5 and back."""

import hickle
import numpy as np

things = {
    "number": 5, "real": 2.5, "complex": 1 + 2j, "text": "höhe", "bytes": b"raw", "none": None, "flag": True,
    "list": [1, "two", [3.0, None]], "tuple": (1, 2, 3), "set": {1, 2}, "empty": [], "big": 2**40,
    "array": np.arange(6, dtype="i2").reshape(2, 3), "names": np.array(["a", "bc"]), "scalar": np.float32(1.5),
    "masked": np.ma.masked_array([1, 2, 3], mask=[0, 1, 0]), "nested": {"a": {"b": [1, 2]}}, 7: "a key that is no text",
}  # fmt: skip
hickle.dump(things, "things.hkl", mode="w", compression="gzip")
found = hickle.load("things.hkl")
for name, value in found.items():
    print(repr(name), type(value).__name__, getattr(value, "dtype", ""), value)
hickle.dump(np.eye(3), "things.hkl", mode="r+", path="/more/eye")
print(hickle.load("things.hkl", path="/more/eye"))
