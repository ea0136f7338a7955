"""Normalisation inside of the mask, and the mask after augmentation, as nnU-Net 2.8.1 has them.

    pip install nnunetv2==2.8.1
    python oracles/nnunet_mask.py

Writes oracles/nnunet_mask.json. The case has two channels of 10 × 12 × 14 voxels, number i of which has the value
500 c + (h(i + 2000 c) mod 1000) + 1 with h(x) = ((x + 1) * 2654435761 mod 2^32) >> 12 inside of an ellipsoid about the centre and 0
outside. Both are 0 in a hole, and one alone is in one more voxel. Label 1 is a box that reaches out of the ellipsoid.
"""

import json
from pathlib import Path

import numpy
import torch
from batchgeneratorsv2.transforms.utils.nnunet_masking import MaskImageTransform
from nnunetv2.preprocessing.cropping.cropping import crop_to_nonzero
from nnunetv2.preprocessing.normalization.default_normalization_schemes import ZScoreNormalization

SHAPE = (10, 12, 14)


def hashed(x):
    return (((x + 1) * 2654435761 % 2**32) >> 12) % 1000


d, h, w = numpy.indices(SHAPE)
number = numpy.arange(numpy.prod(SHAPE), dtype=numpy.uint64).reshape(SHAPE)
inside = ((d - 4.5) / 3.1) ** 2 + ((h - 5.5) / 4.1) ** 2 + ((w - 6.5) / 4.1) ** 2 < 1
hole = (d >= 4) & (d < 6) & (h == 5) & (w >= 6) & (w < 8)
alone = (d == 3) & (h == 5) & (w == 5)
image = numpy.stack([numpy.where(inside & ~hole, 500 * c + hashed(number + 2000 * c) + 1, 0) for c in (0, 1)])
image[1][alone] = 0
image = image.astype(numpy.float32)
label = ((d >= 5) & (d < 8) & (h >= 4) & (h < 8) & (w >= 2) & (w < 7)).astype(numpy.int16)[None]


def normalised(seg):
    """What is cropped and normalised, put back on the grid, and where nnU-Net's label is below 0."""
    data, cropped, box = crop_to_nonzero(image.copy(), seg)
    scheme = ZScoreNormalization(use_mask_for_norm=True, intensityproperties={}, target_dtype=numpy.float32)
    data = numpy.stack([scheme.run(channel, cropped[0]) for channel in data])
    slices = tuple(slice(*ends) for ends in box)
    whole, outside = numpy.zeros(image.shape, numpy.float32), numpy.ones(SHAPE, bool)
    whole[(slice(None), *slices)] = data
    outside[slices] = cropped[0] < 0
    changed = MaskImageTransform([0, 1], channel_idx_in_seg=0, set_outside_to=0)(
        image=torch.from_numpy(data + 3), segmentation=torch.from_numpy(cropped.astype(numpy.int16)))
    masked = numpy.zeros(image.shape, numpy.float32)
    masked[(slice(None), *slices)] = changed["image"].numpy()
    return whole, outside, masked, [list(map(int, ends)) for ends in box]


result = {"shape": SHAPE}
for name, seg in [("training", label.copy()), ("prediction", None)]:
    whole, outside, masked, box = normalised(seg)
    result[name] = {
        "box": box,
        "inside": "".join("01"[int(not value)] for value in outside.ravel()),
        "values": [round(float(value), 6) for value in whole.ravel()],
        "changed": [round(float(value), 6) for value in masked.ravel()],
    }
path = Path(__file__).with_suffix(".json")
path.write_text(json.dumps(result, separators=(",", ":")) + "\n")
print({name: (result[name]["box"], result[name]["inside"].count("1")) for name in ("training", "prediction")})
