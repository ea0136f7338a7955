"""Makes a data set with the sizes and spacings of MiniVess: 70 two-photon volumes of 512 × 512 × 5–110 voxels, `raw/` and `seg/`.

    python benches/vessel_data_set.py FOLDER [CASES]

Lateral spacings are 0.31–1.0 mm (micrometres in the original), planes 0.31–1.5 mm apart, but of one case 4.97 and of one 2.48. Vessels are
random tubes in noise; the same seed makes the same files. `plimsoll train FOLDER` takes it as it is.
"""

import sys
from pathlib import Path

import nibabel
import numpy as np

folder = Path(sys.argv[1])
cases = int(sys.argv[2]) if len(sys.argv) > 2 else 70
for name in ("raw", "seg"):
    (folder / name).mkdir(parents=True, exist_ok=True)
random = np.random.default_rng(18)
nibabel.openers.Opener.default_compresslevel = 1
height, width = 512, 512
row, column = np.mgrid[:height, :width].astype(np.float32)
for case in range(cases):
    depth = [61, 49][case] if case < 2 else int(random.integers(5, 111))
    lateral = float(random.uniform(0.31, 1.0))
    between = [4.97, 2.48][case] if case < 2 else float(random.uniform(0.31, 1.5))
    # Each tube runs through the planes along a line.
    tubes = random.uniform([0, 0, -3, -3, 4], [height, width, 3, 3, 14], (12, 5))
    # Noise whose values are as correlated as those of a scanner.
    noise = random.normal(0, 1, (8, height, width)).astype(np.float32)
    noise = (noise + np.roll(noise, 1, 1) + np.roll(noise, 1, 2)) * 60
    image = np.empty((depth, height, width), np.int16)
    label = np.zeros((depth, height, width), np.uint8)
    for plane in range(depth):
        for y, x, dy, dx, radius in tubes:
            y, x = (y + dy * plane) % height, (x + dx * plane) % width
            top, left = int(max(0, y - 15)), int(max(0, x - 15))
            part = slice(top, top + 31), slice(left, left + 31)
            far = (row[part] - y) ** 2 + (column[part] - x) ** 2
            label[plane][part] |= far < radius**2
        image[plane] = noise[plane % 8] + np.float32(400)
        image[plane][label[plane] > 0] += 700
    affine = np.diag([lateral, lateral, between, 1.0])
    nibabel.save(nibabel.Nifti1Image(image.T, affine), folder / "raw" / f"mv{case:02}.nii.gz")
    nibabel.save(nibabel.Nifti1Image(label.T, affine), folder / "seg" / f"mv{case:02}_y.nii.gz")
    print(f"mv{case:02}: {depth} planes, {lateral:.2f} and {between:.2f} mm", flush=True)
