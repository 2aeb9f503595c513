"""Keras 3: weights to .weights.h5 and back."""

import os

os.environ.setdefault("KERAS_BACKEND", "numpy")
import keras
import numpy as np


def model(seed):
    keras.utils.set_random_seed(seed)
    made = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, name="hidden"), keras.layers.Dense(2, name="out")]
    )
    made.build()
    return made


one, other = model(1), model(2)
one.save_weights("model.weights.h5")
other.load_weights("model.weights.h5")
for mine, theirs in zip(one.get_weights(), other.get_weights(), strict=True):
    print(mine.shape, mine.dtype, np.array_equal(mine, theirs), mine.ravel()[:3].tolist())
one.save("model.keras")
print([layer.name for layer in keras.saving.load_model("model.keras").layers])
x = np.ones((3, 4), "f4")
print(np.allclose(np.asarray(one(x)), np.asarray(other(x))), np.asarray(one(x)).shape)
