"""nnU-Net v2's fingerprint of a small synthetic data set.

    pip install nnunetv2
    python oracles/data_fingerprint.py

Writes oracles/data_fingerprint.json. Images are functions of the voxel's index, so that the tests can generate the same
ones: channel c of case n has at voxel i (depth, height, width order, all within a box) the value h(i + 7919 n + 104729
c) with h(x) = ((x + 1) * 2654435761 mod 2^32) >> 20, less 1024 in channel 0, and 0 outside of the box. Of each case the
10,000 sampled foreground voxels are all of its foreground voxels, several times over; there are 1000, 500, 250 or 2000.

Also: target spacings and median shapes of lists of spacings and shapes.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy
from nnunetv2.experiment_planning.dataset_fingerprint.fingerprint_extractor import DatasetFingerprintExtractor
from nnunetv2.experiment_planning.experiment_planners.default_experiment_planner import ExperimentPlanner
from nnunetv2.preprocessing.cropping.cropping import crop_to_nonzero
from nnunetv2.preprocessing.normalization.default_normalization_schemes import (
    CTNormalization,
    RescaleTo01Normalization,
    ZScoreNormalization,
)
from nnunetv2.preprocessing.resampling.default_resampling import compute_new_shape

CASES = [
    # shape, spacing, box of non-zero voxels, boxes of the labels 1 and 2
    {"shape": [20, 24, 22], "spacing": [3, 0.8, 0.8], "box": [[2, 18], [0, 24], [3, 20]], "labels": [[[4, 14], [5, 13], [5, 15]], [[14, 18], [10, 15], [5, 15]]]},
    {"shape": [12, 30, 28], "spacing": [5, 0.7, 0.7], "box": [[0, 12], [4, 29], [2, 27]], "labels": [[[2, 7], [6, 16], [7, 17]], None]},
    {"shape": [16, 26, 26], "spacing": [2.5, 0.9, 0.85], "box": [[1, 15], [1, 25], [0, 26]], "labels": [[[3, 8], [4, 9], [4, 8]], [[8, 11], [10, 20], [10, 15]]]},
    {"shape": [18, 25, 27], "spacing": [4, 0.75, 0.8], "box": [[0, 18], [0, 25], [0, 27]], "labels": [[[2, 12], [2, 22], [3, 11]], [[12, 14], [2, 22], [3, 13]]]},
]


def values(case, channel, shape):
    index = numpy.arange(numpy.prod(shape), dtype=numpy.uint64) + numpy.uint64(7919 * case + 104729 * channel)
    mixed = ((index + 1) * 2654435761 % 2**32) >> 20
    return (mixed.astype(numpy.float32) - (1024 if channel == 0 else 0)).reshape(shape)


def region(bounds):
    return tuple(slice(*axis) for axis in bounds)


images, labels = [], []
for number, case in enumerate(CASES):
    image = numpy.zeros((2, *case["shape"]), numpy.float32)
    for channel in range(2):
        image[channel][region(case["box"])] = values(number, channel, case["shape"])[region(case["box"])]
    label = numpy.zeros((1, *case["shape"]), numpy.int16)
    for value, bounds in enumerate(case["labels"], 1):
        if bounds:
            label[0][region(bounds)] = value
    images.append(image)
    labels.append(label)

cropped = [crop_to_nonzero(image.copy(), label.copy()) for image, label in zip(images, labels)]
shapes = [data.shape[1:] for data, _, _ in cropped]
spacings = [case["spacing"] for case in CASES]
relative = [numpy.prod(shape) / numpy.prod(case["shape"]) for shape, case in zip(shapes, CASES)]

properties = {}
for channel in range(2):
    samples = []
    for data, seg, _ in cropped:
        foreground = data[channel][seg[0] > 0]
        assert 10_000 % len(foreground) == 0, len(foreground)
        samples.append(numpy.tile(foreground, 10_000 // len(foreground)))
    samples = numpy.concatenate(samples).astype(numpy.float64)
    low, median, high = numpy.percentile(samples, [0.5, 50, 99.5])
    properties[channel] = {
        "mean": samples.mean(),
        "median": median,
        "std": samples.std(),
        "min": samples.min(),
        "max": samples.max(),
        "percentile_99_5": high,
        "percentile_00_5": low,
    }


def target_spacing(spacings, shapes):
    planner = SimpleNamespace(
        overwrite_target_spacing=None,
        anisotropy_threshold=3,
        dataset_fingerprint={"spacings": spacings, "shapes_after_crop": shapes},
    )
    return ExperimentPlanner.determine_fullres_target_spacing(planner)


def median_shape(spacings, shapes, target):
    return numpy.median([compute_new_shape(shape, spacing, target) for shape, spacing in zip(shapes, spacings)], 0)


def normalised(scheme, channel, number):
    data, seg, _ = cropped[number]
    return scheme(False, properties[channel]).run(data[channel].copy(), seg[0])


target = target_spacing(spacings, shapes)
result = {
    "cases": CASES,
    "shapes_after_crop": [[int(size) for size in shape] for shape in shapes],
    "median_relative_size_after_cropping": float(numpy.median(relative)),
    "target_spacing": target.tolist(),
    "median_shape": median_shape(spacings, shapes, target).tolist(),
    "foreground_intensity_properties_per_channel": {
        channel: {name: float(value) for name, value in found.items()} for channel, found in properties.items()
    },
    "channels": [
        [
            {
                "mean": float(channel.mean(dtype=numpy.float64)),
                "std": float(channel.std(dtype=numpy.float64)),
                "min": float(channel.min()),
                "max": float(channel.max()),
            }
            for channel in data
        ]
        for data, _, _ in cropped
    ],
    "label_voxels": [[int((label == value).sum()) for value in range(3)] for label in labels],
    # The first row of the cropped first case.
    "first_row": cropped[0][0][:, 0, 0].tolist(),
    "normalised": {
        "CTNormalization": normalised(CTNormalization, 0, 0)[0, 0].tolist(),
        "ZScoreNormalization": normalised(ZScoreNormalization, 1, 0)[0, 0].tolist(),
        "RescaleTo01Normalization": normalised(RescaleTo01Normalization, 1, 0)[0, 0].tolist(),
    },
    "targets": [],
}

random = numpy.random.default_rng(11)
for number in range(60):
    count = int(random.integers(1, 9))
    thick = random.choice([1, 2, 4, 8])
    spacings = (random.uniform(0.4, 1.2, (count, 3)) * [[thick, 1, 1]]).round(4)
    shapes = (random.integers(60, 300, (count, 3)) / [[random.choice([1, 2, 6]), 1, 1]]).astype(int)
    order = random.permutation(3)
    spacings, shapes = spacings[:, order], shapes[:, order]
    target = target_spacing(spacings, shapes)
    result["targets"].append(
        {
            "spacings": spacings.tolist(),
            "shapes": shapes.tolist(),
            "target": target.tolist(),
            "median_shape": median_shape(spacings, shapes, target).tolist(),
        }
    )

path = Path(__file__).resolve().parent / "data_fingerprint.json"
path.write_text(json.dumps(result, separators=(",", ":")) + "\n")
