"""PyRadiomics' shape and first-order features of generated structures.

    pip install "numpy<2" SimpleITK PyWavelets pykwalify six setuptools wheel
    pip install --no-deps --no-build-isolation pyradiomics==3.0.1
    python oracles/structure_features.py

Writes oracles/structure_features/:

    image.nii.gz, labels.nii.gz     generated, with other spacings along each axis
    features.json                   the features of each label by PyRadiomics' names, with its default settings (bins of 25)

The labels are a noisy ellipsoid, blobs that touch each other in diagonals only, a plate of one slice, a line, a single voxel, a frame with a
hole, a structure at the border of the image, and one of equal intensities. PyRadiomics refuses lines and single voxels with its default
settings; its feature classes compute them all the same. numpy.float, which its code names and NumPy has removed, is put back.
"""

import json
import logging
from pathlib import Path

import numpy as np

np.float = float

import SimpleITK as sitk  # noqa: E402
from radiomics import firstorder, imageoperations, shape  # noqa: E402

logging.getLogger("radiomics").setLevel(logging.ERROR)
HERE = Path(__file__).parent / "structure_features"
SPACING = (0.75, 1.25, 2.5)  # along width, height, depth


def generated():
    """Labels and intensities along depth, height, width."""
    random = np.random.default_rng(47)
    labels = np.zeros((22, 34, 40), np.uint8)
    z, y, x = np.indices(labels.shape)
    noise = random.normal(0, 0.12, labels.shape)
    labels[((z - 7) / 5) ** 2 + ((y - 9) / 7) ** 2 + ((x - 11) / 9) ** 2 + noise < 1] = 1
    blobs = (random.random(labels.shape) < 0.4) & (z > 14) & (z < 20) & (y > 3) & (y < 14) & (x > 3) & (x < 18)
    labels[blobs] = 2
    labels[3, 20:29, 4:15] = 3
    labels[10, 25, 20:31] = 4
    labels[18, 30, 35] = 5
    labels[4:11, 20:31, 24:36] = 6
    labels[4:11, 23:28, 27:33] = 0
    labels[15:22, 22:34, 6:20][random.random((7, 12, 14)) < 0.8] = 7
    labels[14:18, 16:21, 26:31] = 8
    labels[12:16, 2:9, 30:38] = 9
    labels[12:16, 4:9, 30:38][random.random((4, 5, 8)) < 0.5] = 10
    image = np.where(labels > 0, 40 + 35 * labels, -900) + random.normal(0, 60, labels.shape)
    image[labels == 8] = 75.0
    image[labels == 9] = np.exp(random.normal(3, 1.5, (labels == 9).sum()))
    return labels, image.astype(np.float32)


def features(image, labels, label):
    """Both classes on the box of the label, as the extractor calls them."""
    mask = sitk.Cast(labels, sitk.sitkUInt32)
    statistics = sitk.LabelStatisticsImageFilter()
    statistics.Execute(image, mask)
    box = np.array(statistics.GetBoundingBox(label))
    image, mask = imageoperations.cropToTumorMask(image, mask, box, label=label)
    found = {}
    for kind in (shape.RadiomicsShape, firstorder.RadiomicsFirstOrder):
        made = kind(image, mask, label=label, binWidth=25)
        made.enableAllFeatures()
        if kind is firstorder.RadiomicsFirstOrder:
            made.enableFeatureByName("StandardDeviation")
        found |= {name: float(value) for name, value in made.execute().items()}
    return found


def of_files(folder):
    image, labels = (sitk.ReadImage(str(folder / name)) for name in ("image.nii.gz", "labels.nii.gz"))
    present = [int(label) for label in np.unique(sitk.GetArrayFromImage(labels)) if label]
    return {label: features(image, labels, label) for label in present}


def main():
    HERE.mkdir(exist_ok=True)
    for name, array in zip(("labels", "image"), generated()):
        image = sitk.GetImageFromArray(array)
        image.SetSpacing(SPACING)
        image.SetOrigin((-12.0, 30.5, 7.25))
        sitk.WriteImage(image, str(HERE / f"{name}.nii.gz"), useCompression=True)
    found = of_files(HERE)
    (HERE / "features.json").write_text(json.dumps(found, indent=1).replace("NaN", "null") + "\n")


main()
