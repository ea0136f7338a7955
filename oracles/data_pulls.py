"""Patches by nibabel (reorientation) and scipy.ndimage (interpolation), step by step.

    pip install nibabel scipy
    python oracles/data_pulls.py

Writes oracles/data_pulls.json. Each stored image has at voxel i (depth, height, width order) the value h(i) / 1000 -
500 with h(x) = ((x + 1) * 2654435761 mod 2^32) >> 12, and the label (h(i) >> 10) mod 5. It is clipped to ±400, less 20,
times 0.01. The canonical image has its axes along (superior, anterior, right). The grid at the target spacing occupies
the same box as the canonical one. A patch starts at a voxel of that grid; it is mirrored, then scaled, then rotated
about its centre, rigidly in millimetres: about width (depth towards height), then height (width towards depth), then
depth (height towards width). Outside of the box that the voxels fill the image is 0 and the label 0. Labels are the arg
max of the one-hot encoding, each class of which is interpolated linearly.
"""

import json
from pathlib import Path

import nibabel
import numpy
from nibabel.orientations import aff2axcodes
from scipy.ndimage import map_coordinates


def hashed(shape):
    index = numpy.arange(numpy.prod(shape), dtype=numpy.uint64)
    return (((index + 1) * 2654435761 % 2**32) >> 12).reshape(shape)


def rotation(angles, spacing):
    depth, height, width = angles

    def turn(angle, source, to):
        matrix = numpy.eye(3)
        matrix[source, source] = matrix[to, to] = numpy.cos(angle)
        matrix[to, source], matrix[source, to] = numpy.sin(angle), -numpy.sin(angle)
        return matrix

    rigid = turn(depth, 1, 2) @ turn(height, 2, 0) @ turn(width, 0, 1)
    return numpy.diag(1 / spacing) @ rigid @ numpy.diag(spacing)


PULLS = [
    # name, stored shape, axes of the stored image (depth, height, width), spacing of these, target, start, patch,
    # angles, factors, mirrored
    ("as stored", (9, 8, 10), "SAR", (2, 1, 1), (2, 1, 1), (1, 2, 3), (5, 4, 6), (0, 0, 0), (1, 1, 1), (0, 0, 0)),
    ("turned over", (9, 8, 10), "LPS", (1, 1.5, 2), (2, 1.5, 1), (2, 1, 0), (6, 5, 7), (0, 0, 0), (1, 1, 1), (0, 0, 0)),
    ("mirrored", (9, 8, 10), "ARI", (1, 1, 1), (1, 1, 1), (-2, 1, 4), (6, 5, 7), (0, 0, 0), (1, 1, 1), (1, 0, 1)),
    ("finer", (6, 9, 8), "IPL", (3, 1.2, 1), (1, 0.7, 0.8), (5, 6, 2), (7, 6, 5), (0, 0, 0), (1, 1, 1), (0, 1, 0)),
    ("coarser", (14, 13, 12), "RSA", (0.5, 0.6, 0.7), (1.3, 1.1, 1.7), (0, 1, -1), (4, 5, 4), (0, 0, 0), (1, 1, 1), (0, 0, 0)),
    ("turned", (12, 11, 13), "SAR", (1, 1, 1), (1, 1, 1), (2, 2, 3), (7, 6, 8), (0.4, -0.3, 0.5), (1, 1, 1), (0, 0, 0)),
    ("turned and stretched", (10, 12, 11), "PSL", (1, 2, 0.9), (1.5, 0.8, 1), (1, 3, 2), (8, 7, 6), (-0.5, 0.2, 0.35), (0.8, 0.8, 0.8), (1, 1, 0)),
    ("in the plane", (8, 20, 21), "ILA", (4, 0.9, 1), (4, 1, 1), (1, 2, 3), (3, 12, 13), (2.2, 0, 0), (1, 1.3, 1.3), (0, 0, 1)),
    ("outside", (7, 7, 7), "SAR", (1, 1, 1), (1, 1, 1), (9, 0, 0), (3, 3, 3), (0, 0, 0), (1, 1, 1), (0, 0, 0)),
]
WORLD = {"R": (0, 1), "L": (0, -1), "A": (1, 1), "P": (1, -1), "S": (2, 1), "I": (2, -1)}

result = []
for name, shape, letters, spacing, target, start, patch, angles, factors, mirrored in PULLS:
    affine = numpy.zeros((4, 4))
    affine[3, 3] = 1
    affine[:3, 3] = 10, -20, 30
    for axis, letter in enumerate(letters):
        world, sign = WORLD[letter]
        affine[world, axis] = sign * spacing[axis]
    mixed = hashed(shape)
    image = (numpy.clip(mixed / 1000 - 500, -400, 400) - 20) * 0.01
    label = (mixed >> 10) % 5

    def canonical(array):
        # NIfTI's axes are the array's in reverse order.
        nifti = nibabel.Nifti1Image(array.T.astype(numpy.float64), affine[:, [2, 1, 0, 3]])
        nifti = nibabel.as_closest_canonical(nifti)
        assert aff2axcodes(nifti.affine) == ("R", "A", "S")
        return nifti.get_fdata().T, numpy.array(nifti.header.get_zooms()[::-1])

    (image, found), (label, _) = canonical(image), canonical(label)
    spacings = numpy.array(target, float)
    grid = numpy.array([round(float(s / t * n)) for s, t, n in zip(found, spacings, image.shape)])
    index = numpy.indices(patch).reshape(3, -1).astype(float)
    last = numpy.array(patch)[:, None] - 1
    index = numpy.where(numpy.array(mirrored)[:, None] == 1, last - index, index)
    centre = last / 2
    index = (index - centre) * numpy.array(factors)[:, None]
    index = rotation(angles, spacings) @ index + centre + numpy.array(start)[:, None]
    size = numpy.array(image.shape)[:, None]
    at = (index + 0.5) * size / grid[:, None] - 0.5
    inside = ((at >= -0.5) & (at <= size - 0.5)).all(axis=0)
    classes = numpy.array([map_coordinates((label == c).astype(float), at, order=1, mode="nearest") for c in range(5)])
    first, second = numpy.sort(classes, axis=0)[::-1][:2]
    # Where rounding decides which class has more weight, or whether a sample is outside, either is accepted.
    close = (numpy.abs(at - numpy.floor(at) - 0.5).min(axis=0) < 1e-4) | (first - second < 1e-3)
    result.append(
        {
            "name": name,
            "shape": shape,
            "affine": affine[:3].tolist(),
            "target": target,
            "grid": grid.tolist(),
            "start": start,
            "patch": patch,
            "angles": angles,
            "factors": factors,
            "mirrored": mirrored,
            "image": numpy.where(inside, map_coordinates(image, at, order=1, mode="nearest"), 0).round(6).tolist(),
            "labels": numpy.where(inside, classes.argmax(axis=0), 0).astype(int).tolist(),
            "close": close.astype(int).tolist(),
        }
    )

path = Path(__file__).resolve().parent / "data_pulls.json"
path.write_text(json.dumps(result, separators=(",", ":")) + "\n")
