"""The intensity changes of batchgeneratorsv2, nnU-Net v2's augmentation, applied to a small image.

    pip install batchgeneratorsv2 torch
    python oracles/data_intensities.py

Writes oracles/data_intensities.json.
"""

import json
from pathlib import Path

import numpy
import torch
from batchgeneratorsv2.transforms.intensity.brightness import MultiplicativeBrightnessTransform
from batchgeneratorsv2.transforms.intensity.contrast import ContrastTransform
from batchgeneratorsv2.transforms.intensity.gamma import GammaTransform
from batchgeneratorsv2.transforms.noise.gaussian_blur import blur_dimension
from batchgeneratorsv2.transforms.spatial.low_resolution import SimulateLowResolutionTransform

random = numpy.random.default_rng(5)
image = random.normal(0.3, 1.2, (1, 5, 6, 7)).astype(numpy.float32)


def transform(what):
    return what(image=torch.from_numpy(image.copy()))["image"].numpy().ravel().tolist()


def gamma(power, invert):
    return GammaTransform(power, float(invert), synchronize_channels=False, p_per_channel=1, p_retain_stats=1)


def blur(sigmas):
    values = torch.from_numpy(image.copy())
    for axis, sigma in enumerate(sigmas):
        values = blur_dimension(values, sigma, axis)
    return values.numpy().ravel().tolist()


def low_resolution(share, ignored):
    return SimulateLowResolutionTransform((share, share), False, True, ignored, p_per_channel=1)


result = {
    "shape": image.shape[1:],
    "image": image.ravel().tolist(),
    "changes": [
        {"brightness": 1.2, "values": transform(MultiplicativeBrightnessTransform(1.2, False))},
        {"contrast": 0.8, "values": transform(ContrastTransform(0.8, True, False))},
        {"contrast": 1.25, "values": transform(ContrastTransform(1.25, True, False))},
        {"blur": [0.5, 0.7, 1.0], "values": blur([0.5, 0.7, 1.0])},
        {"blur": [0.95, 0.55, 0.83], "values": blur([0.95, 0.55, 0.83])},
        {"low_resolution": [0.5] * 3, "values": transform(low_resolution(0.5, None))},
        {"low_resolution": [0.77] * 3, "values": transform(low_resolution(0.77, None))},
        {"low_resolution": [1, 0.6, 0.6], "values": transform(low_resolution(0.6, (0,)))},
        {"gamma": 0.7, "values": transform(gamma(0.7, False))},
        {"gamma": 1.5, "values": transform(gamma(1.5, False))},
        {"inverted_gamma": 0.75, "values": transform(gamma(0.75, True))},
        {"inverted_gamma": 1.4, "values": transform(gamma(1.4, True))},
    ],
}
path = Path(__file__).resolve().parent / "data_intensities.json"
path.write_text(json.dumps(result, separators=(",", ":")) + "\n")
