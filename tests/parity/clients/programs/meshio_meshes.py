"""meshio: meshes to XDMF, MED, CGNS, HMF and H5M, and back."""

import meshio
import numpy as np

POINTS = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [2, 0, 0], [2, 1, 0.5]], float)
CELLS = [("triangle", np.array([[0, 1, 2], [0, 2, 3]])), ("quad", np.array([[1, 4, 5, 2]]))]


def show(name: str) -> None:
    mesh = meshio.read(name)
    print(name, mesh.points.dtype, mesh.points.tolist())
    print([(block.type, str(block.data.dtype), block.data.tolist()) for block in mesh.cells])
    print([(key, str(found.dtype), found.tolist()) for key, found in sorted(mesh.point_data.items())])
    print([(key, [block.tolist() for block in found]) for key, found in sorted(mesh.cell_data.items())])
    print(sorted(mesh.field_data), getattr(mesh, "point_tags", None), getattr(mesh, "cell_tags", None))


mesh = meshio.Mesh(
    POINTS,
    CELLS,
    point_data={"T": np.arange(6.0), "v": np.arange(18.0).reshape(6, 3)},
    cell_data={"a": [np.array([0.1, 0.2]), np.array([0.4])]},
)
for name, options in {
    "plain.xdmf": {"compression": None},
    "gzip.xdmf": {"compression": "gzip", "compression_opts": 4},
    "default.xdmf": {},
}.items():
    meshio.write(name, mesh, **options)
    show(name)

tags = {"point_tags": np.array([1, 1, 2, 2, 0, 0]), "T": np.arange(6.0)}
tagged = meshio.Mesh(POINTS, CELLS, point_data=tags, cell_data={"cell_tags": [np.array([-1, -2]), np.array([-3])]})
tagged.cell_tags = {-1: ["bottom"], -2: ["top", "also"], -3: ["side"]}
tagged.point_tags = {1: ["one"], 2: ["two"]}
meshio.write("tagged.med", tagged)
show("tagged.med")

tetra = meshio.Mesh(POINTS, [("tetra", np.array([[0, 1, 2, 5], [1, 2, 4, 5]]))])
tetra.point_data["T"] = np.arange(6.0)
for name in ("tetra.cgns", "tetra.h5m", "tetra.med", "tetra.hmf"):
    meshio.write(name, tetra)
    try:
        show(name)
    except meshio.ReadError as error:
        # there is no reader of its own for all of what it writes
        print(name, error)

with meshio.xdmf.TimeSeriesWriter("series.xdmf") as writer:
    writer.write_points_cells(POINTS, CELLS)
    for time in (0.0, 0.5, 1.0):
        values = [np.array([time, 2]), np.array([3.0])]
        writer.write_data(time, point_data={"T": np.arange(6.0) + time}, cell_data={"a": values})
with meshio.xdmf.TimeSeriesReader("series.xdmf") as reader:
    points, cells = reader.read_points_cells()
    print(points.tolist(), [block.data.tolist() for block in cells])
    for step in range(reader.num_steps):
        time, at_points, in_cells = reader.read_data(step)
        print(time, at_points["T"].tolist(), [block.tolist() for block in in_cells["a"]])
