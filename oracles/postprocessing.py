"""Components, sizes, holes and closing of small label maps, by scipy.ndimage: what crates/plimsoll-postprocess is held to.

pip install numpy scipy; python oracles/postprocessing.py
"""

import json
from pathlib import Path

import numpy as np
from scipy import ndimage

STRUCTURES = {name: ndimage.generate_binary_structure(3, n) for n, name in enumerate(("faces", "edges", "corners"), 1)}


def components(mask, step):
    return ndimage.label(mask, STRUCTURES[step.get("neighbours", "corners")])


def groups(step):
    return [step["labels"]] if step.get("together") else [[label] for label in step["labels"]]


def keep(labels, step, is_kept):
    for group in groups(step):
        mask = np.isin(labels, group)
        numbers, count = components(mask, step)
        if count == 0:
            continue
        sizes = ndimage.sum_labels(np.ones(labels.shape), numbers, range(1, count + 1))
        for number, size in enumerate(sizes, 1):
            if not is_kept(size, sizes.max()):
                labels[numbers == number] = 0


def ball(radius, spacing):
    """All offsets within a radius in mm, as a structuring element."""
    reach = [int(np.floor(radius / length + 1e-9)) for length in spacing]
    grid = np.meshgrid(*[np.arange(-n, n + 1) * length for n, length in zip(reach, spacing)], indexing="ij")
    return sum(axis**2 for axis in grid) <= radius**2 * (1 + 1e-9)


def process(labels, step, spacing):
    labels = labels.copy()
    if step["step"] == "keep_largest":
        keep(labels, step, lambda size, largest: size == largest)
    elif step["step"] == "drop_small":
        voxel = np.prod(spacing)
        if "min_voxels" in step:
            keep(labels, step, lambda size, _: size >= step["min_voxels"])
        else:
            keep(labels, step, lambda size, _: size * voxel >= step["min_mm3"])
    elif step["step"] == "fill_holes":
        for label in step["labels"]:
            filled = ndimage.binary_fill_holes(labels == label)
            labels[filled & (labels == 0)] = label
    elif step["step"] == "close":
        for label in step["labels"]:
            element = ball(step["radius_mm"], spacing)
            # Padded, so that the border of the image changes nothing.
            margin = [n for n in element.shape]
            mask = np.pad(labels == label, [(n, n) for n in margin])
            closed = ndimage.binary_closing(mask, element)
            closed = closed[tuple(slice(n, -n) for n in margin)]
            labels[closed & (labels == 0)] = label
    return labels


STEPS = [
    {"step": "keep_largest", "labels": [1, 2, 3]},
    {"step": "keep_largest", "labels": [1, 2], "together": True},
    {"step": "keep_largest", "labels": [2], "neighbours": "faces"},
    {"step": "keep_largest", "labels": [1, 3], "neighbours": "edges"},
    {"step": "drop_small", "labels": [1, 2, 3], "min_voxels": 4},
    {"step": "drop_small", "labels": [1, 2, 3], "min_voxels": 3, "neighbours": "faces"},
    {"step": "drop_small", "labels": [1, 3], "together": True, "min_mm3": 12.5},
    {"step": "fill_holes", "labels": [1]},
    {"step": "fill_holes", "labels": [1, 2, 3]},
    {"step": "close", "labels": [1], "radius_mm": 1.0},
    {"step": "close", "labels": [2, 3], "radius_mm": 2.1},
    {"step": "close", "labels": [3], "radius_mm": 4.2},
]


def main():
    random = np.random.default_rng(20)
    cases = []
    for shape, spacing, fill in [
        ((7, 9, 11), (1.0, 1.0, 1.0), 0.35),
        ((5, 12, 10), (3.0, 0.7, 0.9), 0.6),
        ((8, 8, 8), (0.7, 0.7, 0.7), 0.8),
        ((6, 10, 13), (2.0, 1.0, 1.5), 0.15),
    ]:
        smooth = ndimage.gaussian_filter(random.normal(size=shape), 0.7)
        labels = np.where(random.random(shape) < fill, 1 + np.digitize(smooth, [-0.15, 0.15]), 0)
        after = ["".join(map(str, process(labels, step, spacing).ravel())) for step in STEPS]
        before = "".join(map(str, labels.ravel()))
        cases.append({"shape": shape, "spacing": spacing, "before": before, "after": after})
    changed = [sum(case["after"][n] != case["before"] for case in cases) for n in range(len(STEPS))]
    assert min(changed) > 0, changed
    text = json.dumps({"steps": STEPS, "cases": cases})
    Path(__file__).with_suffix(".json").write_text(text + "\n")


main()
