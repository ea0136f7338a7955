"""The peers of `cargo bench -p plimsoll-volume`: nibabel, SciPy and PyTorch on the same image and the same maps.

    python benches/volume_peers.py IMAGE.nii.gz
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import nibabel
import numpy
import torch
from scipy.ndimage import affine_transform
from scipy.spatial.transform import Rotation
from torch.nn.functional import grid_sample


def median(run):
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


path = sys.argv[1]
stored = numpy.asanyarray(nibabel.load(path).dataobj)
megabytes = stored.nbytes / 1e6
print(f"nibabel, read compressed {megabytes / median(lambda: numpy.asanyarray(nibabel.load(path).dataobj)):8.0f} MB/s")
with tempfile.TemporaryDirectory() as folder:
    image = nibabel.Nifti1Image(stored, nibabel.load(path).affine)
    name = Path(folder) / "image.nii.gz"
    print(f"nibabel, write compressed {megabytes / median(lambda: nibabel.save(image, name)):7.0f} MB/s")
    print(f"nibabel, compressed to {name.stat().st_size / 1e6 / megabytes:10.2f}")

voxels = numpy.ascontiguousarray(stored.T.astype(numpy.float32))
labels = voxels.astype(numpy.uint8)
shape, patch = numpy.array(voxels.shape), numpy.array([96, 96, 96])
start, centre = (shape - patch) // 2, shape / 2
finer = numpy.eye(3) * 0.7
turned = Rotation.from_euler("xyz", [0.4, -0.3, 0.2]).as_matrix() @ finer
for name, matrix in {"finer": finer, "turned": turned}.items():
    offset = centre + matrix @ (start - centre)
    for order, source, out in [(1, voxels, numpy.float32), (0, labels, numpy.uint8)]:
        run = lambda: affine_transform(source, matrix, offset, tuple(patch), out, order, mode="constant", prefilter=False)
        print(f"SciPy, order {order}, {name:8} {median(run) * 1e9 / patch.prod():8.2f} ns/voxel")

# MONAI samples with PyTorch's grid_sample. One thread, as here; the grid is computed once, outside of the timing.
torch.set_num_threads(1)
for name, matrix in {"finer": finer, "turned": turned}.items():
    offset = centre + matrix @ (start - centre)
    at = numpy.moveaxis(numpy.indices(patch), 0, -1) @ matrix.T + offset
    grid = torch.from_numpy((2 * at / (shape - 1) - 1)[None, ..., ::-1].astype(numpy.float32))
    image = torch.from_numpy(voxels)[None, None]
    for mode in ["bilinear", "nearest"]:
        run = lambda: grid_sample(image, grid, mode, "zeros", align_corners=True)
        print(f"PyTorch, {mode:8}, {name:8} {median(run) * 1e9 / patch.prod():8.2f} ns/voxel")
