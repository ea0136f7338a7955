"""Images that scipy.ndimage.zoom has zoomed as TotalSegmentator does it, cut to whole numbers: `zoom.json`."""

import json
from pathlib import Path

import numpy as np
from scipy import ndimage

rng = np.random.default_rng(5)
cases = []
# Shapes and spacings along x, y, z.
for shape, spacing, target in [
    ((7, 5, 6), (2.6, 3.4, 1.1), (1.5, 1.5, 1.5)),
    ((9, 8, 7), (0.7, 0.7, 5.0), (3.0, 3.0, 3.0)),
    ((6, 6, 3), (1.5, 1.5, 4.0), (1.5, 1.5, 1.5)),
]:
    image = rng.integers(-1000, 1500, shape)
    # Alike voxels are not quite alike once zoomed, which cutting shows.
    image[: shape[0] // 2] = 20
    factors = np.array(spacing, np.float32).astype(float) / np.array(target)
    zoomed = ndimage.zoom(image.astype(float), factors, order=1, mode="nearest").astype(np.int32)
    back = ndimage.zoom(zoomed % 117, np.array(shape) / np.array(zoomed.shape), order=0, mode="nearest")
    assert back.shape == shape
    cases.append({
        "shape": shape[::-1], "spacing": spacing[::-1], "target": target[::-1], "image": image.T.ravel().tolist(),
        "zoomed_shape": zoomed.shape[::-1], "zoomed": zoomed.T.ravel().tolist(), "back": back.T.ravel().tolist(),
    })
Path(__file__).with_suffix(".json").write_text(json.dumps(cases))
