"""What TotalSegmentator 2.18 makes of scans with the tasks that leave resampling to nnU-Net, or change labels after networks have decided.

    python oracles/total_segmentator_more.py                  # makes oracles/total_segmentator_more/
    python oracles/total_segmentator_more.py higher_order     # only what logits on the grid of the image decide, with the weights that are there

needs what `total_segmentator.py` needs. Models are made as there, and `total_segmentator/ct.nii.gz` is segmented, too.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
import total_segmentator as base
from totalsegmentator import nnunet, python_api
from totalsegmentator.map_tasks_config import TASK_ID_WEIGHTS_CONFIGS
from totalsegmentator.postprocessing import postprocess_vertebrae_pp, refine_vertebrae_pp_with_body_mask
from totalsegmentator.python_api import totalsegmentator

HERE = Path(__file__).parent / "total_segmentator_more"
WEIGHTS = HERE / "weights"
os.environ["TOTALSEG_WEIGHTS_PATH"] = str(WEIGHTS)
IMAGES = {"ct": base.HERE / "ct.nii.gz", "small": HERE / "small.nii.gz"}

# Data set: outputs, spacing of the network (depth, height, width), trainer, configuration, folds, changes of plans.
MODELS = {
    297: (118, [3.0] * 3, "nnUNetTrainer_4000epochs_NoMirroring", "3d_fullres", 1, {}),
    298: (118, [6.0] * 3, "nnUNetTrainer_4000epochs_NoMirroring", "3d_fullres", 1, {}),
    299: (3, [1.5] * 3, "nnUNetTrainer", "3d_fullres", 1, {}),
    300: (3, [6.0] * 3, "nnUNetTrainer", "3d_fullres", 1, {}),
    305: (3, [1.5] * 3, "nnUNetTrainer_DASegOrd0", "3d_fullres", 1, {}),
    803: (25, [1.5] * 3, "nnUNetTrainerNoMirroring", "3d_fullres", 1, {}),
    952: (23, [1.0, 0.75, 0.75], "nnUNetTrainer_DASegOrd0_NoMirroring", "3d_fullres_high", 1, {}),
    115: (8, [0.5] * 3, "nnUNetTrainer_DASegOrd0_NoMirroring", "3d_fullres", 1, {}),
    113: (78, [0.5] * 3, "nnUNetTrainer_onlyMirror01", "3d_lowres_high", 1, {}),
    # Two folds, whose logits are averaged.
    315: (4, [3.7, 2.4, 2.4], "nnUNetTrainer", "3d_fullres", 2, {}),
    # As plans of images with coarse slices along another axis are, with an image's own statistics.
    260: (2, [4.9, 1.3, 3.3], "nnUNetTrainer", "3d_fullres", 1,
          {"transpose_forward": [2, 0, 1], "transpose_backward": [1, 2, 0], "normalization": "ZScoreNormalization"}),
}
# Lobes of the lung, hips, the brain and the skull: all that the model of 6 mm finds, so that it finds them.
FOUND = {10, 11, 12, 13, 14, 75, 76, 77, 78, 90, 91}
# Few and small regions, so that there are several vertebrae, and specks to be removed.
base.THRESHOLD |= {803: 0.9, 305: -0.3, 299: 0.4, 300: 0.2, 113: -0.5, 115: -0.5}


def plans(spacing, configuration, changes):
    made = base.plans(1.5)
    own = made["configurations"].pop("3d_fullres")
    own["spacing"] = spacing
    if "normalization" in changes:
        own["normalization_schemes"] = [changes["normalization"]]
    made["configurations"][configuration] = own
    made |= {key: value for key, value in changes.items() if key.startswith("transpose")}
    return made


def write_models():
    for number, (outputs, spacing, trainer, configuration, folds, changes) in MODELS.items():
        folder = WEIGHTS / TASK_ID_WEIGHTS_CONFIGS[number]["foldername"] / f"{trainer}__nnUNetPlans__{configuration}"
        for fold in range(folds):
            (folder / f"fold_{fold}").mkdir(parents=True, exist_ok=True)
            net = base.network(outputs, number + 1000 * fold, 3 if outputs > 36 else 2)
            if number == 298:
                with torch.no_grad():
                    others = [label for label in range(1, outputs) if label not in FOUND]
                    net.decoder.seg_layers[-1].bias[others] = -1e4
            checkpoint = {
                "network_weights": net.state_dict(),
                "trainer_name": trainer,
                "init_args": {"configuration": configuration, "fold": fold, "device": torch.device("cpu")},
                "inference_allowed_mirroring_axes": None,
                "_best_ema": np.float64(0.9),
                "current_epoch": 1000,
            }
            torch.save(checkpoint, folder / f"fold_{fold}" / "checkpoint_final.pth")
        (folder / "plans.json").write_text(json.dumps(plans(spacing, configuration, changes), indent=1))
        labels = {"background": 0} | {f"l{i}": i for i in range(1, outputs)}
        dataset = {"channel_names": {"0": "CT"}, "labels": labels, "numTraining": 1, "file_ending": ".nii.gz"}
        (folder / "dataset.json").write_text(json.dumps(dataset, indent=1))


def write_small_image():
    """Few voxels, as half a millimetre makes many of them: of floating point, with its first two axes exchanged."""
    rng = np.random.default_rng(3)
    shape = (20, 24, 15)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij"))
    image = rng.uniform(-200, 200) * grid[0] + rng.uniform(-200, 200) * grid[1] + rng.uniform(-200, 200) * grid[2]
    for _ in range(14):
        middle, radius = rng.uniform(-0.9, 0.9, 3), rng.uniform(0.2, 0.6, 3)
        inside = (((grid - middle[:, None, None, None]) / radius[:, None, None, None]) ** 2).sum(0) < 1
        image[inside] = rng.uniform(-900, 1400)
    image += rng.normal(0, 15, shape)
    affine = np.diag([-1.9, 1.6, 2.3, 1.0])
    affine[:3, 3] = [20, -30, 400]
    image = nib.Nifti1Image(image.astype(np.float32), affine)
    image = image.as_reoriented(np.array([[1, 1], [0, 1], [2, -1]]))
    nib.save(image, HERE / "small.nii.gz")


def values(path):
    return np.asarray(nib.load(path).dataobj)


COMMON = {"device": "cpu", "quiet": True, "nr_thr_saving": 1, "ml": True}


def run(image, name, **options):
    totalsegmentator(IMAGES[image], HERE / f"{name}.nii.gz", **(COMMON | options))
    found = values(HERE / f"{name}.nii.gz")
    print(name, found.shape, (found > 0).mean().round(3), len(np.unique(found)), "values", file=sys.stderr, flush=True)


def main():
    write_models()
    write_small_image()
    base.sum_in_single_precision()
    # Without a GPU it forgets the device of a task that another needs.
    python_api.convert_device_to_string = lambda _: "cpu"
    run("ct", "body", task="body")
    run("ct", "body_fast", task="body", fast=True)
    run("ct", "body_seg", fast=True, body_seg=True)
    run("ct", "blobs", fast=True, remove_small_blobs=True)
    run("ct", "pleural_pericard_effusion", task="pleural_pericard_effusion")
    run("ct", "hip_implant", task="hip_implant", remove_small_blobs=900.0)
    # Masks of the body have the skin beside them.
    masks = HERE / "masks"
    totalsegmentator(IMAGES["ct"], masks, task="body", fast=True, **(COMMON | {"ml": False}))
    for name in ["body", "skin"]:
        mask = nib.load(masks / f"{name}.nii.gz")
        nib.save(nib.Nifti1Image(np.asarray(mask.dataobj).astype(np.uint8), mask.affine), HERE / f"mask_{name}.nii.gz")
        print(name, np.asarray(mask.dataobj).mean(), file=sys.stderr)
    for mask in masks.iterdir():
        mask.unlink()
    masks.rmdir()
    run("small", "craniofacial_structures", task="craniofacial_structures")
    run("small", "teeth", task="teeth")
    run("small", "abdominal_muscles", task="abdominal_muscles")
    run("ct", "vertebrae_pp", task="vertebrae_pp")
    run("ct", "vertebrae_pp_refined", task="vertebrae_pp_refined")


def higher_order():
    """Labels that are decided on the grid of the image. TotalSegmentator interpolates the logits of a label in a box around the voxels that have it at the
    network's resolution; of three labels each box has all voxels, but of many of a model that is not trained it has not: there it is told to export
    as nnU-Net does, which interpolates all of them everywhere, and how many voxels have another label then is printed."""
    base.sum_in_single_precision()
    run("ct", "higher_order_body", task="body", higher_order_resampling=True)
    run("ct", "boxes", fast=True, higher_order_resampling=True)
    knows = nnunet.supports_keyword_argument
    nnunet.supports_keyword_argument = lambda of, name: name != "use_cropped_logits_resampling" and knows(of, name)
    run("ct", "higher_order_total", fast=True, higher_order_resampling=True)
    boxes = HERE / "boxes.nii.gz"
    print("in boxes", (values(boxes) != values(HERE / "higher_order_total.nii.gz")).sum(), "have other labels", file=sys.stderr)
    boxes.unlink()


def vertebrae():
    """Small label maps of vertebrae, before and after."""
    rng = np.random.default_rng(11)
    names = {number: f"vertebrae_{number}" for number in range(1, 25)} | {1: "vertebrae_C1", 24: "vertebrae_L5"}
    cases = []
    for kind in ["apart", "touching", "from the top", "with the lowest"]:
        shape = (9, 8, 34)
        labels = np.zeros(shape, np.uint8)
        top = {"apart": 9, "touching": 12, "from the top": 1, "with the lowest": 18}[kind]
        for number in range(6):
            at = 28 - 5 * number
            labels[2 : 7 - number % 2, 1 + number % 2 : 7, at : at + 3] = top + number
        if kind != "apart":
            # Leaks into a neighbour, and a speck.
            labels[2:4, 2:7, 18:21] = top + 1
            labels[0, 0, 0] = top + 5
        if kind == "with the lowest":
            labels[3:6, 2:6, 3:6] = 24
        after = postprocess_vertebrae_pp(labels.copy(), names, voxel_volume=np.float32(1.5) ** 3,
                                         voxel_spacing=tuple(np.float32([1.5] * 3)))
        spacing = rng.uniform(0.4, 5.2, 3).astype(np.float32)
        body = (rng.random(shape) < 0.7).astype(np.uint8)
        refined = refine_vertebrae_pp_with_body_mask(labels, body, names, voxel_spacing=tuple(spacing), dilation_mm=2)
        lists = {name: array.transpose(2, 1, 0).ravel().tolist()
                 for name, array in {"labels": labels, "after": after, "body": body, "refined": refined}.items()}
        cases.append({"kind": kind, "shape": shape[::-1], "spacing": [float(length) for length in spacing[::-1]]} | lists)
    (HERE / "vertebrae.json").write_text(json.dumps(cases, separators=(",", ":")))


if __name__ == "__main__":
    if sys.argv[1:] == ["higher_order"]:
        higher_order()
        sys.exit()
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    vertebrae()
    main()
    higher_order()
