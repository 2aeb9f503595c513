"""pyh5md: elements of H5MD files, which are subclasses of h5py's classes."""

import h5py
import numpy as np
import pyh5md

file = pyh5md.File("p.h5", "w", author="A. Uthor", author_email="a@b", creator="c", creator_version="1")
atoms = file.particles_group("atoms")
atoms.create_box(dimension=3, boundary=["periodic"] * 3, store="fixed", data=np.ones(3) * 10)
position = pyh5md.element(atoms, "position", store="time", shape=(6, 3), dtype=np.float64, time=True)
velocity = pyh5md.element(atoms, "velocity", store="time", data=np.zeros((6, 3)), step_from=position)
image = pyh5md.element(
    atoms, "image", store="linear", data=np.zeros((6, 3), "i4"), step=10, step_offset=2, time=0.1, time_offset=0.5
)
species = pyh5md.element(atoms, "species", store="fixed", data=np.arange(6))
atoms.create_dataset("mass", data=np.ones(6))
energy = pyh5md.element(file.require_group("observables"), "energy", store="linear", data=1.0, step=2)
print(isinstance(position, h5py.Group), isinstance(species, h5py.Dataset), position, image, species)
for step in range(5):
    position.append(np.full((6, 3), step) + np.arange(3), step * 10, time=step * 0.1)
    velocity.append(np.full((6, 3), -step), step * 10)
    image.append(np.full((6, 3), step))
    energy.append(step * 1.5)
position.append(np.zeros((2, 3)), 50, time=0.5, region=(0, 2))
print(position.value.shape, velocity.value.shape, velocity.step == position.step, velocity.own_step)
print(position.get_by_idx(2).tolist(), species.value[:].tolist(), image.value[:].tolist())
file.close()

file = pyh5md.File("p.h5", "r")
atoms = file.particles_group("atoms")
for name in ("position", "velocity", "image", "species"):
    found = pyh5md.element(atoms, name)
    times = [None if each is None else np.asarray(each).tolist() for each in (found.step, found.time)]
    print(name, found.element_type, times, found.step_offset, found.time_offset, found.value[:].tolist())
print(pyh5md.element(file["observables"], "energy").value[:].tolist(), dict(file["h5md/author"].attrs))
print(file["h5md"].attrs["version"].tolist(), list(atoms["box"].attrs["boundary"]))
print(pyh5md.element(atoms["box"], "edges")[:].tolist(), atoms["velocity/step"] == atoms["position/step"])
file.close()
try:
    pyh5md.File("none.h5", "r")
except FileNotFoundError:
    print("no such file")
