"""The peers of `cargo bench -p plimsoll-data -- FOLDER`: the same data set, the same patch, one thread.

    pip install nnunetv2 batchgeneratorsv2 torch
    python benches/data_peers.py FOLDER

nnU-Net's volumes are resampled and normalised before training, and are held in memory here, as with its cache at
best. Its blur and its simulated low resolution are disabled, as Plimsoll does not have them.
"""

import statistics
import sys
import time
from pathlib import Path

import nibabel
import numpy
import torch
from batchgeneratorsv2.transforms.intensity.gaussian_noise import GaussianNoiseTransform
from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

torch.set_num_threads(1)
PATCH = (96, 96, 96)
# nnU-Net's initial patch size, large enough for rotation by up to 30 degrees and scaling.
INITIAL = (142, 142, 142)

folder = Path(sys.argv[1])
volumes = []
for path in sorted((folder / "imagesTr").glob("*.nii.gz")):
    image = nibabel.load(path).get_fdata(dtype=numpy.float32).T
    label = numpy.asarray(nibabel.load(folder / "labelsTr" / path.name.replace("_0000", "")).dataobj).T
    volumes.append(((image - image.mean()) / image.std(), label.astype(numpy.int16)))
random = numpy.random.default_rng(1)


def cut(size):
    image, label = volumes[random.integers(len(volumes))]
    start = [random.integers(max(1, n - s + 1)) for n, s in zip(image.shape, size)]
    box = tuple(slice(a, a + s) for a, s in zip(start, size))
    pad = [(0, s - c) for s, c in zip(size, image[box].shape)]
    return {
        "image": torch.from_numpy(numpy.pad(image[box], pad)[None].copy()),
        "segmentation": torch.from_numpy(numpy.pad(label[box], pad, constant_values=-1)[None].copy()),
    }


def median(run, count=15):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def report(name, milliseconds):
    print(f"{name:32} {milliseconds:8.2f} ms")


angles = [0.3, -0.2, 0.4]
turned = SpatialTransform(
    PATCH, 0, False, p_rotation=1, rotation=lambda **about: angles[about["dim"]], p_scaling=1, scaling=1.2,
    p_synchronize_scaling_across_axes=1, bg_style_seg_sampling=False, border_mode_seg="constant", padding_value_seg=-1,
)
report("96³ with labels, cropped", median(lambda: cut(PATCH)))
sample = cut(INITIAL)
report("96³ with labels, rotated and scaled", median(lambda: turned(**sample)))
transforms = nnUNetTrainer.get_training_transforms(
    PATCH, (-numpy.pi / 6, numpy.pi / 6), None, (0, 1, 2), False, [False], False, [1], None, None
)
left_out = ("Blur", "LowResolution")
kept = [t for t in transforms.transforms if not any(name in repr(t) + type(getattr(t, "transform", t)).__name__ for name in left_out)]
assert len(transforms.transforms) - len(kept) == 2, kept
compose = ComposeTransforms(kept)
start = time.perf_counter()
for _ in range(100):
    compose(**cut(INITIAL))
report("96³ augmented, 1 thread", (time.perf_counter() - start) * 10)
