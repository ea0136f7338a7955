"""What TotalSegmentator 2.18 makes of a small CT with tiny models in the places of its own: `oracles/total_segmentator/`.

    python oracles/total_segmentator.py

needs TotalSegmentator==2.18.0 and nnunetv2==2.8.1. The models are not trained. Their convolutions blur, and their heads divide the space
of their features into boxes, a class each: so the labels are contiguous regions of many classes, as those of trained models are, and
few voxels lie so near to a border that rounding decides.
"""

import itertools
import json
import os
import shutil
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import torch

HERE = Path(__file__).parent / "total_segmentator"
WEIGHTS = HERE / "weights"
os.environ["TOTALSEG_HOME_DIR"] = "/tmp/plimsoll-totalsegmentator-home"
os.environ["TOTALSEG_WEIGHTS_PATH"] = str(WEIGHTS)
Path(os.environ["TOTALSEG_HOME_DIR"]).mkdir(exist_ok=True)

from nnunetv2.inference import predict_from_raw_data  # noqa: E402
from nnunetv2.utilities.get_network_from_plans import get_network_from_plans  # noqa: E402
from totalsegmentator.map_tasks_config import TASK_ID_WEIGHTS_CONFIGS  # noqa: E402
from totalsegmentator.python_api import totalsegmentator  # noqa: E402

# Data set: outputs, spacing, trainer.
MODELS = {
    291: (25, 1.5, "nnUNetTrainerNoMirroring"),
    292: (27, 1.5, "nnUNetTrainerNoMirroring"),
    293: (19, 1.5, "nnUNetTrainerNoMirroring"),
    294: (24, 1.5, "nnUNetTrainerNoMirroring"),
    295: (27, 1.5, "nnUNetTrainerNoMirroring"),
    297: (118, 3.0, "nnUNetTrainer_4000epochs_NoMirroring"),
    298: (118, 6.0, "nnUNetTrainer_4000epochs_NoMirroring"),
}
PATCH = [16, 16, 24]
FEATURES = [4, 8]
# Of each stage.
CONVOLUTIONS = 1
# Of the first feature, above which a model finds anything.
THRESHOLD = {291: 0.0, 292: 0.3, 293: 0.6, 294: 0.9, 295: 1.2}
STEEP = 1.5


def plans(spacing):
    """Plans in the form that they had when its models were trained, before 2024."""
    return {
        "dataset_name": "made",
        "plans_name": "nnUNetPlans",
        "original_median_spacing_after_transp": [spacing] * 3,
        "original_median_shape_after_transp": [40, 40, 40],
        "image_reader_writer": "SimpleITKIO",
        "transpose_forward": [0, 1, 2],
        "transpose_backward": [0, 1, 2],
        "configurations": {
            "3d_fullres": {
                "data_identifier": "nnUNetPlans_3d_fullres",
                "preprocessor_name": "DefaultPreprocessor",
                "batch_size": 2,
                "patch_size": PATCH,
                "median_image_size_in_voxels": [40.0, 40.0, 40.0],
                "spacing": [spacing] * 3,
                "normalization_schemes": ["CTNormalization"],
                "use_mask_for_norm": [False],
                "UNet_class_name": "PlainConvUNet",
                "UNet_base_num_features": FEATURES[0],
                "n_conv_per_stage_encoder": [CONVOLUTIONS] * len(FEATURES),
                "n_conv_per_stage_decoder": [CONVOLUTIONS] * (len(FEATURES) - 1),
                "num_pool_per_axis": [len(FEATURES) - 1] * 3,
                "pool_op_kernel_sizes": [[1, 1, 1]] + [[2, 2, 2]] * (len(FEATURES) - 1),
                "conv_kernel_sizes": [[3, 3, 3]] * len(FEATURES),
                "unet_max_num_features": 320,
                "resampling_fn_data": "resample_data_or_seg_to_shape",
                "resampling_fn_seg": "resample_data_or_seg_to_shape",
                "resampling_fn_data_kwargs": {"is_seg": False, "order": 3, "order_z": 0, "force_separate_z": None},
                "resampling_fn_seg_kwargs": {"is_seg": True, "order": 1, "order_z": 0, "force_separate_z": None},
                "resampling_fn_probabilities": "resample_data_or_seg_to_shape",
                "resampling_fn_probabilities_kwargs": {"is_seg": False, "order": 1, "order_z": 0, "force_separate_z": None},
                "batch_dice": True,
            }
        },
        "experiment_planner_used": "ExperimentPlanner",
        "label_manager": "LabelManager",
        "foreground_intensity_properties_per_channel": {
            "0": {"max": 3000.0, "mean": -50.38, "median": 0.0, "min": -1024.0, "percentile_00_5": -1004.0,
                  "percentile_99_5": 1588.0, "std": 503.39}
        },
    }


def network(outputs, seed, axes=None):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    net = get_network_from_plans(
        "dynamic_network_architectures.architectures.unet.PlainConvUNet",
        {"n_stages": len(FEATURES), "features_per_stage": FEATURES, "conv_op": "torch.nn.modules.conv.Conv3d",
         "kernel_sizes": [[3, 3, 3]] * len(FEATURES), "strides": [[1, 1, 1]] + [[2, 2, 2]] * (len(FEATURES) - 1),
         "n_conv_per_stage": [CONVOLUTIONS] * len(FEATURES), "n_conv_per_stage_decoder": [CONVOLUTIONS] * (len(FEATURES) - 1),
         "conv_bias": True,
         "norm_op": "torch.nn.modules.instancenorm.InstanceNorm3d", "norm_op_kwargs": {"eps": 1e-5, "affine": True},
         "dropout_op": None, "dropout_op_kwargs": None, "nonlin": "torch.nn.LeakyReLU", "nonlin_kwargs": {"inplace": True}},
        ["conv_op", "norm_op", "dropout_op", "nonlin"], 1, outputs, deep_supervision=True)
    with torch.no_grad():
        for name, value in net.named_parameters():
            if value.ndim == 5 and "seg_layers" not in name:
                value.uniform_(0.5, 1.5).div_(value[0].numel())
            elif "norm.weight" in name:
                value.uniform_(0.8, 1.2)
            elif "norm.bias" in name:
                value.uniform_(-0.2, 0.2)
            elif ".conv.bias" in name:
                value.uniform_(-0.1, 0.1)
        # Where the first feature is below a model's threshold there is background, so that models which come later leave what those before
        # have found; above it, the others are divided into boxes around the points of a lattice, a class each: a class's logit is the
        # larger the nearer its point is. Neighbouring logits differ by far more than the halves that nnU-Net sums them in are rounded by.
        axes = axes or (2 if outputs < 100 else 3)
        points = list(itertools.product(np.linspace(0, 2, 6 if axes == 2 else 5), repeat=axes))
        points = torch.tensor(rng.permutation(points)[: outputs - 1])
        head = net.decoder.seg_layers[-1]
        head.weight.zero_()
        head.bias.zero_()
        head.weight[1:, 0, 0, 0, 0] = 2 * STEEP
        head.weight[1:, 1 : 1 + axes, 0, 0, 0] = 2 * points.float()
        head.bias[1:] = -points.float().square().sum(1) - 2 * STEEP * THRESHOLD.get(seed, 0.1)
    return net


def write_models():
    for number, (outputs, spacing, trainer) in MODELS.items():
        name = TASK_ID_WEIGHTS_CONFIGS[number]["foldername"]
        folder = WEIGHTS / name / f"{trainer}__nnUNetPlans__3d_fullres"
        (folder / "fold_0").mkdir(parents=True)
        (folder / "plans.json").write_text(json.dumps(plans(spacing), indent=1))
        labels = {"background": 0} | {f"l{i}": i for i in range(1, outputs)}
        dataset = {"channel_names": {"0": "CT"}, "labels": labels, "numTraining": 1, "file_ending": ".nii.gz"}
        (folder / "dataset.json").write_text(json.dumps(dataset, indent=1))
        checkpoint = {
            "network_weights": network(outputs, number).state_dict(),
            "trainer_name": trainer,
            "init_args": {"configuration": "3d_fullres", "fold": 0, "device": torch.device("cpu")},
            "inference_allowed_mirroring_axes": None,
            "_best_ema": np.float64(0.9),
            "current_epoch": 4000,
        }
        torch.save(checkpoint, folder / "fold_0" / "checkpoint_final.pth")


def write_image():
    """A body of ellipsoids in air between zeros, stored with its axes turned, tilted by a little."""
    rng = np.random.default_rng(7)
    shape = (34, 40, 26)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij"))
    image = np.full(shape, -1000.0)
    image[(grid**2 / np.array([0.8, 0.9, 1.5])[:, None, None, None] ** 2).sum(0) < 1] = 20
    for _ in range(25):
        middle, radius = rng.uniform(-0.7, 0.7, 3), rng.uniform(0.1, 0.4, 3)
        inside = (((grid - middle[:, None, None, None]) / radius[:, None, None, None]) ** 2).sum(0) < 1
        image[inside] = rng.uniform(-800, 1200)
    image += rng.normal(0, 15, shape)
    # Zeros at some of its ends, which nnU-Net cuts off.
    image = np.pad(image, ((7, 0), (0, 5), (4, 2)))
    tilt = np.deg2rad(4)
    turn = np.array([[np.cos(tilt), -np.sin(tilt), 0], [np.sin(tilt), np.cos(tilt), 0], [0, 0, 1]])
    affine = np.eye(4)
    affine[:3, :3] = turn @ np.diag([-3.1, -2.7, 4.3])
    affine[:3, 3] = [50, 60, -300]
    image = nib.Nifti1Image(image.astype(np.int16), affine)
    # Stored with the second axis slowest.
    image = image.as_reoriented(np.array([[2, 1], [0, -1], [1, 1]]))
    nib.save(image, HERE / "ct.nii.gz")


def sum_in_single_precision():
    """Logits are summed in halves otherwise, of which a voxel in a few hundred depends here; with trained models it is far fewer."""
    gaussian = predict_from_raw_data.compute_gaussian

    def single(*args, **named):
        return gaussian(*args, **(named | {"dtype": torch.float32}))

    single.cache_clear = gaussian.cache_clear
    torch.half = torch.float32
    predict_from_raw_data.compute_gaussian = single


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    write_models()
    write_image()
    sum_in_single_precision()
    common = {"device": "cpu", "quiet": True, "nr_thr_saving": 1, "ml": True}
    totalsegmentator(HERE / "ct.nii.gz", HERE / "total.nii.gz", **common)
    totalsegmentator(HERE / "ct.nii.gz", HERE / "fast.nii.gz", fast=True, **common)
    totalsegmentator(HERE / "ct.nii.gz", HERE / "subset.nii.gz", roi_subset=["liver", "rib_left_1"], **common)
    for name in ["total", "fast", "subset"]:
        labels = np.asarray(nib.load(HERE / f"{name}.nii.gz").dataobj)
        print(name, labels.shape, labels.dtype, len(np.unique(labels)), "values", file=sys.stderr)


if __name__ == "__main__":
    main()
