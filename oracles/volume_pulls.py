"""scipy.ndimage's samples through affine maps: linear (order 1) and nearest (order 0).

    python oracles/volume_pulls.py

Writes oracles/volume_pulls.json. Samples outside of the source are clamped to the edge; "inside" marks those that are
within half a voxel of the outermost centres along each axis: the others may be a constant instead.
"""

import json
from pathlib import Path

import numpy
from scipy.ndimage import map_coordinates

random = numpy.random.default_rng(2)
shape = (6, 7, 8)
image = random.integers(-1000, 1000, shape).astype(numpy.float64)
labels = random.integers(0, 256, shape)


def turn(degrees, axis):
    angle = numpy.deg2rad(degrees)
    i, j = [k for k in range(3) if k != axis]
    matrix = numpy.eye(3)
    matrix[i, i] = matrix[j, j] = numpy.cos(angle)
    matrix[i, j], matrix[j, i] = -numpy.sin(angle), numpy.sin(angle)
    return matrix


maps = {
    "identity": (numpy.eye(3), [0, 0, 0], shape),
    "crop beyond the edge": (numpy.eye(3), [-2, 3, 5], (5, 4, 6)),
    "shift by parts of voxels": (numpy.eye(3), [0.3, -0.7, 1.45], shape),
    "finer": (numpy.diag([0.5, 0.4, 0.3]), [-0.25, -0.3, -0.35], (12, 9, 10)),
    "coarser and backwards": (numpy.diag([1.7, -2.2, -1.3]), [-1, 6, 8], (4, 4, 7)),
    "axes exchanged": (numpy.array([[0, 0, 1], [0, -1, 0], [1, 0, 0]]), [0, 6, 0], (8, 7, 6)),
    "axes exchanged and finer": (numpy.array([[0, 0.6, 0], [0, 0, -0.7], [0.9, 0, 0]]), [-0.7, 6.6, 0.2], (9, 9, 9)),
    "turned": (turn(20, 0) @ turn(-35, 1) @ turn(50, 2), [1.5, 3, -2], (7, 7, 7)),
    "sheared": (numpy.array([[1, 0.2, 0], [0, 0.9, -0.3], [0.15, 0, 1.1]]), [-0.6, 1.3, -0.9], (6, 6, 8)),
    "wholly outside": (numpy.eye(3), [20, 0.25, 0], (2, 2, 3)),
}

result = {"shape": shape, "image": image.ravel().tolist(), "labels": labels.ravel().tolist(), "pulls": []}
for name, (linear, shift, out_shape) in maps.items():
    linear, shift = numpy.asarray(linear, float), numpy.asarray(shift, float)
    index = numpy.indices(out_shape).reshape(3, -1)
    at = linear @ index + shift[:, None]
    last = numpy.array(shape)[:, None] - 1
    inside = ((at >= -0.5) & (at <= last + 0.5)).all(axis=0)
    result["pulls"].append(
        {
            "name": name,
            "rows": numpy.column_stack([linear, shift]).tolist(),
            "shape": out_shape,
            "linear": map_coordinates(image, at, order=1, mode="nearest").round(5).tolist(),
            "nearest": map_coordinates(labels, at, order=0, mode="nearest").tolist(),
            "inside": inside.astype(int).tolist(),
        }
    )

path = Path(__file__).resolve().parent / "volume_pulls.json"
path.write_text(json.dumps(result, separators=(",", ":")) + "\n")
