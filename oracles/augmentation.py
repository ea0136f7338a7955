"""Rates, ranges and statistics of nnU-Net's augmented patches: its own data loader and transforms on a small case.

    pip install nnunetv2==2.8.1
    python oracles/augmentation.py

Writes oracles/augmentation.json: over 2,000 patches, of batches of two, the mean and the standard deviation of what is drawn and
of what comes out; once for cubic patches, once for flat ones, which nnU-Net rotates in their plane alone.

The case has 40 × 44 × 48 voxels. At (d, h, w), number i, its value is 1.5 + sin(0.31 d) + cos(0.23 h) sin(0.27 w) + h(i) / 2^20
with h(x) = ((x + 1) * 2654435761 mod 2^32) >> 12. Label 1 is a ball of radius 8 about (14, 16, 30), label 2 the box from
(30, 32, 0) to (40, 44, 10), in a corner.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy
import torch
from batchgeneratorsv2.transforms.intensity.brightness import MultiplicativeBrightnessTransform
from batchgeneratorsv2.transforms.intensity.contrast import ContrastTransform
from batchgeneratorsv2.transforms.intensity.gamma import GammaTransform
from batchgeneratorsv2.transforms.intensity.gaussian_noise import GaussianNoiseTransform
from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
from batchgeneratorsv2.transforms.spatial.low_resolution import SimulateLowResolutionTransform
from batchgeneratorsv2.transforms.spatial.mirroring import MirrorTransform
from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform
from nnunetv2.training.data_augmentation.compute_initial_patch_size import get_patch_size
from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

PATCHES = 2000
SHAPE = (40, 44, 48)

d, h, w = numpy.indices(SHAPE)
number = numpy.arange(numpy.prod(SHAPE), dtype=numpy.uint64)
noise = ((((number + 1) * 2654435761 % 2**32) >> 12) / 2**20).reshape(SHAPE)
image = (1.5 + numpy.sin(0.31 * d) + numpy.cos(0.23 * h) * numpy.sin(0.27 * w) + noise).astype(numpy.float32)[None]
label = numpy.zeros(SHAPE, numpy.int16)
label[(d - 14) ** 2 + (h - 16) ** 2 + (w - 30) ** 2 < 64] = 1
label[30:, 32:, :10] = 2
label = label[None]

drawn = {}


def note(name, value):
    drawn.setdefault(name, []).append(float(value))


def noting(kind, what):
    plain = kind.get_parameters

    def parameters(self, **data):
        found = plain(self, **data)
        what(self, found)
        return found

    kind.get_parameters = parameters


def of_space(self, found):
    affine = numpy.eye(3) if found["affine"] is None else found["affine"]
    dimensions = len(affine)
    scale = abs(numpy.linalg.det(affine)) ** (1 / dimensions)
    turn = affine / scale
    cosine = (numpy.trace(turn) - 1) / 2 if dimensions == 3 else turn[0, 0]
    angle = numpy.degrees(numpy.arccos(numpy.clip(cosine, -1, 1)))
    if abs(scale - 1) > 1e-9:
        note("scale", scale)
    if angle > 1e-5:
        note("angle", angle)


def of_blur(self, found):
    for sigmas in found["sigmas"]:
        note("blur", numpy.mean(sigmas))


def of_low_resolution(self, found):
    for scales in found["scales"]:
        note("low_resolution", scales[-1])
        note("low_resolution_of_depth", scales[0])


noting(SpatialTransform, of_space)
noting(GaussianNoiseTransform, lambda self, found: note("noise", found["sigmas"]))
noting(GaussianBlurTransform, of_blur)
noting(MultiplicativeBrightnessTransform, lambda self, found: note("brightness", found["multipliers"][0]))
noting(ContrastTransform, lambda self, found: note("contrast", found["multipliers"][0]))
noting(SimulateLowResolutionTransform, of_low_resolution)
noting(GammaTransform, lambda self, found: note("inverted_gamma" if self.p_invert_image else "gamma", found["gamma"][0]))
noting(MirrorTransform, lambda self, found: [note(f"mirror_{axis}", 1) for axis in found["axes"]])


class Case:
    identifiers = ["a"]

    def load_case(self, name):
        where = {c: numpy.argwhere(label == c) for c in (1, 2)}
        # Copies, since transforms change patches in place, and a patch may be a view of its case.
        return image.copy(), label.copy(), None, {"class_locations": where}


def statistics(patch):
    """Of one augmented patch."""
    values, labels = patch
    steps = numpy.abs(numpy.diff(values, axis=2)).mean()
    return {
        "mean": values.mean(),
        "deviation": values.std(),
        "least": values.min(),
        "greatest": values.max(),
        "step": steps,
        "label_1": (labels == 1).mean(),
        "label_2": (labels == 2).mean(),
    }


result = []
for final in [(20, 20, 20), (6, 24, 24)]:
    drawn.clear()
    numpy.random.seed(1)
    torch.manual_seed(1)
    configuration = SimpleNamespace(patch_size=final)
    trainer = SimpleNamespace(configuration_manager=configuration, print_to_log_file=lambda *_: None)
    rotation, flat, initial, mirror = nnUNetTrainer.configure_rotation_dummyDA_mirroring_and_inital_patch_size(trainer)
    transforms = nnUNetTrainer.get_training_transforms(final, rotation, None, mirror, flat)
    manager = SimpleNamespace(all_labels=[0, 1, 2], has_ignore_label=False)
    loader = nnUNetDataLoader(Case(), 2, initial, final, manager, 0.33, transforms=transforms)
    found = []
    for _ in range(PATCHES // 2):
        batch = loader.generate_train_batch()
        found += [statistics((image[0].numpy(), label[0].numpy())) for image, label in zip(batch["data"], batch["target"])]
    of_drawn = {
        name: {"rate": len(values) / PATCHES, "mean": numpy.mean(values), "deviation": numpy.std(values),
               "least": numpy.min(values), "greatest": numpy.max(values)}
        for name, values in drawn.items()
    }
    of_patches = {
        name: {"mean": float(numpy.mean([one[name] for one in found])), "deviation": float(numpy.std([one[name] for one in found]))}
        for name in found[0]
    }
    result.append({"patch": final, "patches": PATCHES, "drawn": of_drawn, "statistics": of_patches})

path = Path(__file__).resolve().parent / "augmentation.json"
path.write_text(json.dumps(result, indent=1) + "\n")
