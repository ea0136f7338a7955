"""Reference numbers for crates/plimsoll-metrics/tests, from surface-distance, MONAI, scikit-image and scikit-learn.

    python oracles/metrics.py

Versions that made the committed file: numpy 2.4.6, scipy 1.17.1, scikit-image 0.26.0, scikit-learn 1.9.1,
torch 2.15.0, monai 1.6.1, connected-components-3d 4.1.1, surface-distance 0.1 (which uses names that NumPy and SciPy
have dropped since).
"""

import json
import math
import warnings
from pathlib import Path

import cc3d
import numpy as np
import scipy.ndimage as ndi
import scipy.stats
import torch
from monai.metrics import (
    compute_average_surface_distance,
    compute_hausdorff_distance,
    compute_surface_dice,
)
from monai.metrics.panoptic_quality import compute_panoptic_quality
from skimage.metrics import variation_of_information
from skimage.morphology import skeletonize
from skimage.measure import euler_number
import sklearn.metrics as skm

np.Inf = np.inf
if not hasattr(ndi, "filters"):
    ndi.filters = ndi
if not hasattr(ndi, "morphology"):
    ndi.morphology = ndi
import surface_distance.metrics as sd  # noqa: E402

OUT = Path(__file__).with_suffix(".json")


def number(value):
    value = float(value)
    return None if math.isnan(value) else "inf" if math.isinf(value) else value


def bits(mask):
    return np.packbits(mask.ravel()).tobytes().hex()


def blobs(rng, shape, level, sigma):
    noise = ndi.gaussian_filter(rng.standard_normal(shape), sigma)
    return noise > level * noise.std()


def masks():
    """Name, prediction, reference, spacing."""
    rng = np.random.default_rng(11)
    shape = (14, 18, 22)
    a = blobs(rng, shape, 0.8, 2)
    yield "blobs", blobs(rng, shape, 0.9, 2), a, (2.5, 0.7, 1.1)
    yield "shifted", np.roll(a, (1, 0, 2), (0, 1, 2)), a, (1.0, 1.0, 1.0)
    ragged = a ^ (rng.random(shape) < 0.04)
    yield "ragged", ragged, a, (3.0, 0.45, 0.45)
    yield "noise", rng.random((9, 11, 13)) < 0.3, rng.random((9, 11, 13)) < 0.35, (1.0, 2.0, 0.5)
    tubes = np.zeros((20, 20, 24), bool)
    z = np.arange(24)
    tubes[(10 + 6 * np.sin(z / 4)).astype(int), (10 + 6 * np.cos(z / 4)).astype(int), z] = True
    tubes = ndi.binary_dilation(tubes, iterations=2)
    broken = tubes.copy()
    broken[:, :, 11:13] = False
    yield "tubes", broken, tubes, (1.0, 1.0, 1.5)
    ball = np.linalg.norm(np.indices((16, 16, 16)) - 7.5, axis=0)
    yield "shell", (ball < 7) & (ball > 3), ball < 6.5, (1.0, 1.0, 1.0)
    full = np.ones((6, 7, 8), bool)
    empty = np.zeros_like(full)
    one = empty.copy()
    one[2, 3, 4] = True
    corner = empty.copy()
    corner[0, 0, 0] = True
    border = empty.copy()
    border[:3, :, 5:] = True
    plane = empty.copy()
    plane[4] = True
    for name, prediction, reference in [
        ("full and full", full, full),
        ("full and one voxel", full, one),
        ("empty and one voxel", empty, one),
        ("one voxel and empty", one, empty),
        ("empty and empty", empty, empty),
        ("one voxel and a corner", one, corner),
        ("border and a corner", border, corner),
        ("plane and border", plane, border),
    ]:
        yield name, prediction, reference, (2.0, 0.8, 1.3)
    yield "image", blobs(rng, (1, 40, 48), 0.5, (0, 3, 3)), blobs(rng, (1, 40, 48), 0.5, (0, 3, 3)), (5.0, 0.6, 0.9)


def surfaces(prediction, reference, spacing, tolerances):
    flat = prediction.shape[0] == 1
    if flat:
        prediction, reference, spacing = prediction[0], reference[0], spacing[1:]
    found = sd.compute_surface_distances(reference, prediction, spacing)
    to_prediction, to_reference = sd.compute_average_surface_distance(found)
    weights = np.concatenate([found["surfel_areas_gt"], found["surfel_areas_pred"]])
    distances = np.concatenate([found["distances_gt_to_pred"], found["distances_pred_to_gt"]])
    empty = len(distances) == 0
    elements = {
        "hd": math.nan if empty else sd.compute_robust_hausdorff(found, 100),
        "hd95": math.nan if empty else sd.compute_robust_hausdorff(found, 95),
        "averages": [number(to_reference), number(to_prediction)],
        "assd": math.nan if empty else np.sum(distances * weights) / np.sum(weights),
        "nsd": [number(sd.compute_surface_dice_at_tolerance(found, t)) for t in tolerances],
    }
    p, r = (torch.from_numpy(mask)[None, None] for mask in (prediction, reference))
    space = {"include_background": True, "spacing": list(spacing)}
    voxels = {
        "hd": compute_hausdorff_distance(p, r, **space),
        "hd95": compute_hausdorff_distance(p, r, percentile=95, **space),
        "assd": compute_average_surface_distance(p, r, symmetric=True, **space),
        "nsd": [number(compute_surface_dice(p, r, [t], **space)) for t in tolerances],
    }
    return [
        {key: value if isinstance(value, list) else number(value) for key, value in scores.items()}
        for scores in (elements, voxels)
    ]


def betti(mask):
    """Foreground connected at corners, background at faces."""
    components = int(cc3d.connected_components(mask, connectivity=26).max())
    cavities = int(cc3d.connected_components(np.pad(~mask, 1, constant_values=True), connectivity=6).max()) - 1
    if mask.shape[0] == 1:
        cavities = 0
    return [components, components + cavities - int(euler_number(mask, 3)), cavities]


def cl_dice(prediction, reference):
    """The authors' cldice_metric, with Lee's skeletons in images as well; and the numbers of voxels of both skeletons."""
    p, r = (skeletonize(mask, method="lee") > 0 for mask in (prediction, reference))
    if prediction.shape[0] == 1:
        p, r = (skeletonize(mask[0], method="lee")[None] > 0 for mask in (prediction, reference))
    precision, sensitivity = np.sum(p & reference) / np.sum(p), np.sum(r & prediction) / np.sum(r)
    score = 2 * precision * sensitivity / (precision + sensitivity)
    return {"score": number(score), "skeletons": [int(p.sum()), int(r.sum())]}


def lesions(prediction, reference):
    p, r = (cc3d.connected_components(mask, connectivity=26).astype(np.int64) for mask in (prediction, reference))
    if prediction.any() or reference.any():
        matched, extra, missed, iou = compute_panoptic_quality(
            torch.from_numpy(p), torch.from_numpy(r), output_confusion_matrix=True
        ).tolist()
    else:
        matched = extra = missed = iou = 0
    splits, merges = variation_of_information(r, p)
    detections = []
    for threshold in (0.0, 0.3):

        def covered(labels, other):
            shares = [np.mean(other[labels == label]) for label in range(1, labels.max() + 1)]
            return int(sum(share > 0 and share >= threshold for share in shares))

        found = covered(r, prediction)
        detections.append([found, int(r.max()) - found, int(p.max()) - covered(p, reference)])
    return {
        "panoptic": [matched, extra, missed, iou],
        "splits": number(splits),
        "merges": number(merges),
        "detections": detections,
    }


def segmentation():
    cases = []
    for name, prediction, reference, spacing in masks():
        tolerances = [0.0, min(spacing), 2.0]
        elements, voxels = surfaces(prediction, reference, spacing, tolerances)
        cases.append(
            {
                "name": name,
                "shape": prediction.shape,
                "spacing": spacing,
                "prediction": bits(prediction),
                "reference": bits(reference),
                "tolerances": tolerances,
                "elements": elements,
                "voxels": voxels,
                "cldice": cl_dice(prediction, reference),
                "betti": [betti(prediction), betti(reference)],
                "lesions": lesions(prediction, reference),
            }
        )
    return cases


def tables():
    """Name, labels, probabilities."""
    rng = np.random.default_rng(12)

    def table(cases, classes, sharpness, digits):
        labels = rng.integers(0, classes, cases)
        logits = rng.standard_normal((cases, classes)) + sharpness * np.eye(classes)[labels]
        probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        return labels, np.round(probabilities, digits)

    yield "two classes", *table(80, 2, 1.0, 6)
    yield "four classes", *table(120, 4, 1.2, 6)
    yield "ties", *table(60, 3, 0.8, 1)
    labels, probabilities = table(50, 3, 1.0, 4)
    yield "a class without cases", np.where(labels == 1, 2, labels), probabilities
    yield "perfect", np.arange(9) % 3, np.eye(3)[np.arange(9) % 3]
    yield "one class only", np.zeros(5, int), np.tile([0.7, 0.3], (5, 1))
    yield "one case", np.array([1]), np.array([[0.4, 0.6]])


def calibration_error(labels, probabilities, bins=15):
    """The expected calibration error of Guo et al. 2017, with NumPy."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    edges = np.linspace(0, 1, bins + 1)
    error = 0.0
    for low, high in zip(edges[:-1], edges[1:]):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return error


def classification():
    found = []
    for name, labels, probabilities in tables():
        classes = range(probabilities.shape[1])
        predicted = probabilities.argmax(1)
        exist = {"labels": list(classes), "average": None, "zero_division": np.nan}
        by_class = {
            "sensitivity": skm.recall_score(labels, predicted, **exist),
            "precision": skm.precision_score(labels, predicted, **exist),
            "f1": skm.f1_score(labels, predicted, **exist),
            "specificity": [
                skm.recall_score(labels != k, predicted != k, zero_division=np.nan) for k in classes
            ],
            "auroc": [
                skm.roc_auc_score(labels == k, probabilities[:, k]) if 0 < (labels == k).sum() < len(labels) else np.nan
                for k in classes
            ],
            "average_precision": [
                skm.average_precision_score(labels == k, probabilities[:, k]) if (labels == k).any() else np.nan
                for k in classes
            ],
        }
        overall = {
            "accuracy": skm.accuracy_score(labels, predicted),
            "balanced_accuracy": skm.balanced_accuracy_score(labels, predicted),
            "quadratic_kappa": skm.cohen_kappa_score(labels, predicted, weights="quadratic", labels=list(classes)),
            "ece": calibration_error(labels, probabilities),
            **{key: np.nanmean(by_class[key]) for key in ("f1", "auroc", "average_precision")},
        }
        found.append(
            {
                "name": name,
                "labels": labels.tolist(),
                "probabilities": probabilities.ravel().tolist(),
                "overall": {key: number(value) for key, value in overall.items()},
                "classes": {key: [number(value) for value in values] for key, values in by_class.items()},
                "confusion_matrix": skm.confusion_matrix(labels, predicted, labels=list(classes)).tolist(),
                # The bootstrap of the accuracy is a binomial distribution.
                "accuracy_interval": [
                    scipy.stats.binom.ppf(q, len(labels), overall["accuracy"]) / len(labels) for q in (0.025, 0.975)
                ],
            }
        )
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    OUT.write_text(json.dumps({"segmentation": segmentation(), "classification": classification()}) + "\n")
