"""What nnU-Net 2 makes of images, of earlier labels and of logits, by its own functions.

    pip install nnunetv2==2.8.1 batchgenerators==0.25.5
    python oracles/nnunet_voxels.py

Writes oracles/nnunet_voxels.json. Channel c of a stored image (depth, height, width) has at voxel i the value h(c * voxels + i) / 1000
- 500 with h(x) = ((x + 1) * 2654435761 mod 2^32) >> 12, but 0 outside of the box of its channel, and inside of the hole. Earlier labels
have (h(i // 5) >> 10) mod 4 at voxel i, and logits of class c at voxel i of the network's grid h(c * voxels + i) / 1e5. `flipped` axes of
the stored image run against the canonical ones that they are of. `seen_after` is the image of a later stage of a cascade, where earlier
labels change what it is: inside a mask. Of labels that are decided by less than 1e-3, "." is written.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy
from nnunetv2.preprocessing.cropping.cropping import crop_to_nonzero
from nnunetv2.preprocessing.preprocessors.default_preprocessor import DefaultPreprocessor
from nnunetv2.preprocessing.resampling.default_resampling import compute_new_shape, resample_data_or_seg_to_shape

FOREGROUND = {"mean": 20.5, "median": 10.0, "std": 180.25, "min": -500.0, "max": 548.0, "percentile_00_5": -350.5, "percentile_99_5": 420.75}
Z, CT, UNIT = "ZScoreNormalization", "CTNormalization", "RescaleTo01Normalization"


def hashed(first, count):
    index = first + numpy.arange(count, dtype=numpy.uint64)
    return ((index + 1) * 2654435761 % 2**32) >> 12


def case(name, shape, spacing, target, boxes, hole, channels, transposed=(0, 1, 2), order=(0, 1, 2), flipped=(0, 0, 0), reorients=False):
    """`order` and `flipped`: which canonical axis each stored one is, and whether it runs against it."""
    return locals()


def box(*ends):
    return [list(end) for end in ends]


CASES = [
    case("finer", (9, 11, 10), (1, 1, 1), (0.7, 0.8, 0.9), [box((1, 8), (0, 10), (2, 9))], box((0, 0), (0, 0), (0, 0)), [(Z, False)]),
    case("coarser", (18, 17, 19), (1, 1, 1), (1.6, 1.3, 2.1), [box((0, 17), (1, 17), (0, 19))], box((0, 0), (0, 0), (0, 0)), [(CT, False)]),
    case("finer along one axis", (8, 9, 10), (1.5, 1, 1), (0.8, 1, 1), [box((0, 8), (1, 9), (0, 10))], box((0, 0), (0, 0), (0, 0)), [(UNIT, False)]),
    case("slices", (6, 12, 11), (5, 1, 1), (2.6, 0.8, 1.2), [box((0, 6), (1, 12), (0, 10))], box((1, 3), (4, 8), (4, 8)), [(Z, False)]),
    case("slices across the width, in a mask", (12, 10, 7), (1, 1.1, 5), (8, 1.3, 0.9), [box((1, 9), (1, 9), (1, 5)), box((3, 12), (2, 8), (0, 5))], box((4, 7), (3, 6), (2, 4)), [(Z, True), (CT, True)], (2, 1, 0)),
    case("slices across the height", (11, 6, 9), (0.9, 4, 1), (6.5, 1.2, 1.4), [box((0, 10), (0, 6), (1, 9))], box((0, 0), (0, 0), (0, 0)), [(Z, False)], (1, 2, 0)),
    case("slices of the target", (10, 9, 8), (1, 1, 1), (4, 0.8, 1.3), [box((0, 9), (0, 9), (0, 8))], box((0, 0), (0, 0), (0, 0)), [(UNIT, False)]),
    case("every other slice", (8, 9, 8), (4, 1, 1), (8, 1, 1), [box((0, 8), (0, 9), (0, 8))], box((0, 0), (0, 0), (0, 0)), [(CT, False)]),
    case("in the plane", (5, 10, 11), (2.5, 1, 1), (0.8, 1.2), [box((0, 5), (0, 9), (0, 11))], box((0, 0), (0, 0), (0, 0)), [(Z, False)]),
    case("in the plane of distant slices", (5, 10, 11), (7, 1, 1), (1.3, 0.7), [box((1, 5), (0, 9), (2, 11))], box((0, 0), (0, 0), (0, 0)), [(Z, True)]),
    case("as stored, in a mask", (9, 10, 8), (1, 1, 1), (1, 1, 1), [box((1, 8), (1, 9), (0, 7))], box((3, 6), (4, 7), (2, 5)), [(Z, True)]),
    case("two axes are coarse", (12, 6, 7), (0.3, 1.2, 1.2), (0.5, 1, 0.9), [box((0, 12), (0, 6), (0, 7))], box((0, 0), (0, 0), (0, 0)), [(Z, False)]),
    case("reoriented", (9, 8, 10), (1, 2, 1.5), (1.5, 1.2, 1.4), [box((1, 9), (0, 7), (2, 10))], box((3, 5), (3, 5), (4, 6)), [(Z, True)], (1, 0, 2), (2, 0, 1), (1, 0, 1), True),
    case("as stored, whatever its orientation", (9, 8, 10), (1, 2, 1.5), (1.5, 1.2, 1.4), [box((1, 9), (0, 7), (2, 10))], box((0, 0), (0, 0), (0, 0)), [(Z, False)], (0, 1, 2), (2, 0, 1), (1, 0, 1)),
    case("one slice", (1, 12, 9), (1, 1, 1), (1.3, 0.7), [box((0, 1), (1, 12), (0, 8))], box((0, 0), (0, 0), (0, 0)), [(Z, False)]),
]


def inside(bounds, shape):
    found = numpy.zeros(shape, bool)
    found[tuple(slice(*end) for end in bounds)] = True
    return found


def rounded(array):
    return [float(f"{value:.6g}") for value in array.ravel()]


def letters(labels, sure):
    return "".join(str(label) if certain else "." for label, certain in zip(labels.ravel(), sure.ravel()))


result = []
for one in CASES:
    shape, voxels = one["shape"], int(numpy.prod(one["shape"]))
    stored = []
    for channel, bounds in enumerate(one["boxes"]):
        values = hashed(channel * voxels, voxels).reshape(shape) / 1000 - 500
        stored.append(numpy.where(inside(bounds, shape) & ~inside(one["hole"], shape), values, 0))
    stored = numpy.stack(stored).astype(numpy.float32)
    earlier = ((hashed(0, voxels)[numpy.arange(voxels) // 5] >> 10) % 4).reshape(shape).astype(numpy.int16)

    def read(array):
        if not one["reorients"]:
            return array
        array = numpy.flip(array, [axis + 1 for axis in range(3) if one["flipped"][axis]])
        return array.transpose([0, *(one["order"].index(axis) + 1 for axis in range(3))])

    spacing = [float(x) for x in one["spacing"]]
    if one["reorients"]:
        spacing = [spacing[one["order"].index(axis)] for axis in range(3)]
    images = {"order": 3, "order_z": 0, "force_separate_z": None}

    def resampling(is_seg, order):
        return lambda data, new, current, target: resample_data_or_seg_to_shape(
            data, new, current, target, is_seg=is_seg, order=order, order_z=0, force_separate_z=None
        )

    forward = list(one["transposed"])
    configuration = SimpleNamespace(
        spacing=list(one["target"]),
        normalization_schemes=[scheme for scheme, _ in one["channels"]],
        use_mask_for_norm=[masked for _, masked in one["channels"]],
        resampling_fn_data=resampling(False, 3),
        resampling_fn_seg=resampling(True, 1),
    )
    plans = SimpleNamespace(
        transpose_forward=forward,
        foreground_intensity_properties_per_channel={str(c): FOREGROUND for c in range(len(one["channels"]))},
        get_label_manager=lambda _: SimpleNamespace(has_regions=False, foreground_labels=[1, 2, 3], has_ignore_label=False),
    )
    properties = {"spacing": spacing}
    seen, _, properties = DefaultPreprocessor(verbose=False).run_case_npy(read(stored), None, properties, plans, configuration, {})

    after = numpy.zeros(0)
    if (Z, True) in one["channels"]:
        after, _, _ = DefaultPreprocessor(verbose=False).run_case_npy(read(stored), read(earlier[None]), {"spacing": spacing}, plans, configuration, {})

    network = [0, *(axis + 1 for axis in forward)]
    cropped, labels, bounds = crop_to_nonzero(read(stored).transpose(network), read(earlier[None]).transpose(network).copy())
    current = [spacing[axis] for axis in forward]
    target = list(one["target"]) if len(one["target"]) == 3 else [current[0], *one["target"]]
    new = compute_new_shape(cropped.shape[1:], current, target)
    assert list(new) == list(seen.shape[1:])
    labels = configuration.resampling_fn_seg(labels, new, current, target)[0]

    # On the way back: logits to the crop, decided, put back.
    classes = 3
    count = int(numpy.prod(new))
    logits = (hashed(0, classes * count) / 1e5).reshape(classes, *new)
    logits = resample_data_or_seg_to_shape(logits, cropped.shape[1:], target, current, is_seg=False, order=1, order_z=0, force_separate_z=None)
    ordered = numpy.sort(logits, axis=0)
    decided = numpy.zeros(read(stored).transpose(network).shape[1:], int)
    sure = numpy.ones(decided.shape, bool)
    where = tuple(slice(*end) for end in bounds)
    decided[where], sure[where] = logits.argmax(0), ordered[-1] - ordered[-2] > 1e-3
    # Regions, later over earlier: above 5 the first has value 7, the second 2, the third 5.
    regions = numpy.zeros(decided.shape, int)
    certain = numpy.ones(decided.shape, bool)
    regions[where] = 0
    for value, logit in zip((7, 2, 5), logits):
        part = regions[where]
        part[logit > 5] = value
        certain[where] &= abs(logit - 5) > 1e-3

    def back(array):
        array = array.transpose(numpy.argsort(forward))
        if one["reorients"]:
            array = array.transpose(one["order"])
            array = numpy.flip(array, [axis for axis in range(3) if one["flipped"][axis]])
        return array

    # Probabilities of classes and of regions: outside of the crop the first class, and no region.
    likely, regional = numpy.zeros((2, classes, *decided.shape))
    likely[0] = 1
    powers = numpy.exp(logits - logits.max(0))
    likely[(slice(None), *where)] = powers / powers.sum(0)
    regional[(slice(None), *where)] = 1 / (1 + numpy.exp(5 - logits))
    has_probabilities = one["name"] in ("finer along one axis", "slices across the height")

    result.append(
        {
            **{key: one[key] for key in one},
            "foreground": FOREGROUND,
            "seen_shape": list(seen.shape),
            "seen": rounded(seen),
            "seen_after": rounded(after),
            "labels": letters(numpy.maximum(labels, 0), numpy.ones(labels.shape, bool)),
            "decided": letters(back(decided), back(sure)),
            "regions": letters(back(regions), back(certain)),
            "probabilities": [rounded(back(one)) for one in likely] if has_probabilities else [],
            "sigmoids": [rounded(back(one)) for one in regional] if has_probabilities else [],
        }
    )
Path(__file__).with_suffix(".json").write_text(json.dumps(result) + "\n")
print(sum(len(one["seen"]) for one in result), "values,", Path(__file__).with_suffix(".json").stat().st_size, "bytes")
