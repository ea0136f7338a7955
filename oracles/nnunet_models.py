"""Small model folders of nnU-Net, images for them, and what nnU-Net predicts.

    python oracles/nnunet_models.py                writes oracles/nnunet/ (committed)
    python oracles/nnunet_models.py primus FOLDER  writes a case whose weights are too large to be committed: primus, primus_v2 or primus_v3

Needs nnunetv2 2.8.1 and torch. Every model is built, briefly trained and saved by nnU-Net's own trainer class, and every
prediction is made by its predictor on the CPU, mirrored along the axes that the checkpoint allows. A case is a folder:

    results/DatasetXXX_Name/TRAINER__PLANS__CONFIGURATION/   as nnU-Net lays it out
    images/CASE_0000.nii.gz                                  what is predicted
    expected/CONFIGURATION/CASE.nii.gz                       what nnU-Net wrote; .npz beside it where probabilities are kept
    expected/ensemble/CASE.nii.gz                            what it makes of the mean probabilities of several configurations
    exported.zip                                             what nnUNetv2_export_model_to_zip makes of it

`pictures` also has its images as BMP and as TIFF, of which nnU-Net reads the same pixels; `stacks` has TIFF files of many pages, with their
spacings in JSON beside them, in `images` and where labels are written.

`expected/CONFIGURATION_constant` is what it writes of `batch_norm` without a Gaussian (`use_gaussian=False`), with sums in single precision;
`python oracles/nnunet_models.py constant` writes it anew from the models that are there.

`postprocessing/` has a label map, and what each of the steps of its postprocessing.json makes of that, one after the other.

nnU-Net adds logits up in half precision, even on a CPU. `expected/CONFIGURATION_f32` is what it writes with sums in single
precision instead: the same program with `torch.half` replaced, and `agreement.json` is how many voxels of the two are equal.
"""

import copy
import json
import os
import random
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
HERE = Path(__file__).parent / "nnunet"
SCRATCH = Path(tempfile.mkdtemp(prefix="nnunet-oracle-"))
for name in ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results"):
    os.environ[name] = str(SCRATCH / name)
    (SCRATCH / name).mkdir()
os.environ["nnUNet_compile"] = "f"
os.environ["nnUNet_n_proc_DA"] = "0"

import nibabel
import numpy as np
import SimpleITK as sitk
import skimage.io
import tifffile
import torch
from nnunetv2.inference import predict_from_raw_data
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.inference.sliding_window_prediction import compute_gaussian
from nnunetv2.postprocessing.remove_connected_components import (
    apply_postprocessing, remove_all_but_largest_component_from_segmentation)
from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as trainer_module
from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name
from nnunetv2.utilities.label_handling.label_handling import convert_labelmap_to_one_hot

torch.set_num_threads(1)
# Nothing is read from a folder of preprocessed data.
trainer_module.infer_dataset_class = lambda folder: None


# ---------------------------------------------------------------------------------------------------------------- images

def smooth(shape, generator, waves=5):
    """A field between about -1 and 1 that varies slowly, of a few random waves."""
    z, y, x = np.meshgrid(*[np.linspace(0, 1, n) for n in shape], indexing="ij")
    field = np.zeros(shape)
    for _ in range(waves):
        k = generator.uniform(-9, 9, 3)
        field += np.cos(k[0] * z + k[1] * y + k[2] * x + generator.uniform(0, 6.3))
    return field / waves


def phantom(shape, seed):
    """Intensities of an object within zeros, and labels 1 to 3 inside it."""
    g = np.random.default_rng(seed)
    z, y, x = np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij")

    def ball(centre, radii):
        return sum(((a - c) / r) ** 2 for a, c, r in zip((z, y, x), centre, radii)) < 1

    body = ball(g.uniform(-0.06, 0.06, 3), g.uniform(0.78, 0.88, 3))
    labels = np.zeros(shape, np.int64)
    c = g.uniform(-0.2, 0.2, 3)
    labels[ball(c, g.uniform(0.45, 0.6, 3)) & body] = 1
    labels[ball(c + g.uniform(-0.12, 0.12, 3), g.uniform(0.3, 0.4, 3)) & body] = 2
    labels[ball(c + g.uniform(-0.05, 0.05, 3), g.uniform(0.14, 0.2, 3)) & body] = 3
    texture = smooth(shape, g)
    image = np.array([60.0, 150.0, 230.0, 300.0])[labels] + 25 * texture + g.normal(0, 6, shape)
    image[~body] = 0
    # A hole of zeros that lies inside: cropping by a mask fills it.
    image[ball(c + 0.3, (0.1, 0.1, 0.1))] = 0
    return image, labels


ORIENTATIONS = {
    "straight": np.eye(3),
    "flipped": np.diag([-1.0, -1.0, 1.0]),
    # Columns are the directions of x, y and z in LPS; turned about two axes.
    "oblique": np.array([[0.96, -0.28, 0.0], [0.2688, 0.9216, -0.28], [0.0784, 0.2688, 0.96]]),
    # x runs along the head, z to the side.
    "permuted": np.array([[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]),
}


def write_image(path, array, spacing, orientation):
    image = sitk.GetImageFromArray(array)
    image.SetSpacing([float(s) for s in spacing[::-1]])
    image.SetOrigin((-31.5, 12.25, -107.0))
    image.SetDirection(ORIENTATIONS[orientation].ravel())
    sitk.WriteImage(image, str(path), useCompression=True)


def values_of(image, channel):
    """What is stored of a phantom in a channel."""
    return np.round(image).astype(np.int16) if channel == 0 else np.round(2 * np.sqrt(np.abs(image))).astype(np.float32) / 2


def write_case(kind, folder, name, image, channels, spacing, orientation):
    """Files of an image, a channel each, or a picture of all of them."""
    if kind == "pictures":
        colours = np.stack([np.clip(values_of(image, c)[0] * (0.6 + 0.1 * c) + 10 * c, 0, 255) for c in range(channels)], -1)
        for ending, beside in ((".png", ""), (".bmp", "_bmp"), (".tif", "_tif")):
            there = folder.with_name(folder.name + beside)
            there.mkdir(exist_ok=True)
            skimage.io.imsave(there / f"{name}_0000{ending}", colours.astype(np.uint8), check_contrast=False)
            assert np.array_equal(skimage.io.imread(there / f"{name}_0000{ending}"), colours.astype(np.uint8))
        return [str(folder / f"{name}_0000.png")]
    files = []
    for channel in range(channels):
        array = values_of(image, channel)
        if kind == "stacks":
            file = folder / f"{name}_{channel:04}.tif"
            # The first channel in whole numbers as microscopes write them, the second in single precision, unpacked.
            tifffile.imwrite(file, array.astype(np.uint16) if channel == 0 else array, photometric="minisblack",
                             compression="zlib" if channel == 0 else None, rowsperstrip=7 if channel == 0 else None)
        else:
            file = folder / f"{name}_{channel:04}.nii.gz"
            write_image(file, array, spacing, orientation)
        files.append(str(file))
    if kind == "stacks" and spacing is not None:
        (folder / f"{name}.json").write_text(json.dumps({"spacing": list(spacing)}))
    return files


def write_labels(kind, folder, name, labels, spacing, orientation):
    labels = labels.astype(np.uint8)
    if kind == "pictures":
        skimage.io.imsave(folder / f"{name}.png", labels[0], check_contrast=False)
    elif kind == "stacks":
        tifffile.imwrite(folder / f"{name}.tif", labels)
        (folder / f"{name}.json").write_text(json.dumps({"spacing": list(spacing or (1, 1, 1))}))
    else:
        write_image(folder / f"{name}.nii.gz", labels, spacing, orientation)
    return str(folder / f"{name}{ENDINGS[kind]}")


ENDINGS = {"volumes": ".nii.gz", "pictures": ".png", "stacks": ".tif"}


# ----------------------------------------------------------------------------------------------------------------- plans

RESAMPLING = {
    "resampling_fn_data": "resample_data_or_seg_to_shape",
    "resampling_fn_data_kwargs": {"is_seg": False, "order": 3, "order_z": 0, "force_separate_z": None},
    "resampling_fn_seg": "resample_data_or_seg_to_shape",
    "resampling_fn_seg_kwargs": {"is_seg": True, "order": 1, "order_z": 0, "force_separate_z": None},
    "resampling_fn_probabilities": "resample_data_or_seg_to_shape",
    "resampling_fn_probabilities_kwargs": {"is_seg": False, "order": 1, "order_z": 0, "force_separate_z": None},
}


def architecture(network, dimensions, features, kernels, strides, encoder, decoder):
    blocks = "n_blocks_per_stage" if network == "ResidualEncoderUNet" else "n_conv_per_stage"
    return {
        "network_class_name": f"dynamic_network_architectures.architectures.unet.{network}",
        "arch_kwargs": {
            "n_stages": len(features), "features_per_stage": features,
            "conv_op": f"torch.nn.modules.conv.Conv{dimensions}d", "kernel_sizes": kernels, "strides": strides,
            blocks: encoder, "n_conv_per_stage_decoder": decoder, "conv_bias": True,
            "norm_op": f"torch.nn.modules.instancenorm.InstanceNorm{dimensions}d",
            "norm_op_kwargs": {"eps": 1e-05, "affine": True}, "dropout_op": None, "dropout_op_kwargs": None,
            "nonlin": "torch.nn.LeakyReLU", "nonlin_kwargs": {"inplace": True},
        },
        "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
    }


def configuration(name, patch, spacing, schemes, mask, arch, **more):
    return {
        "data_identifier": f"nnUNetPlans_{name}", "preprocessor_name": "DefaultPreprocessor", "batch_size": 2,
        "patch_size": patch, "median_image_size_in_voxels": [30.0] * len(patch), "spacing": spacing,
        "normalization_schemes": schemes, "use_mask_for_norm": mask, **RESAMPLING, "architecture": arch,
        "batch_dice": False, **more,
    }


CT_PROPERTIES = {"max": 420.0, "mean": 182.25, "median": 171.0, "min": -40.0, "percentile_00_5": 41.0, "percentile_99_5": 301.5, "std": 68.5}


def plans(dataset, configurations, channels, transpose=(0, 1, 2), reader="SimpleITKIO"):
    return {
        "dataset_name": dataset, "plans_name": "nnUNetPlans", "original_median_spacing_after_transp": [1.0, 1.0, 1.0],
        "original_median_shape_after_transp": [30, 32, 32], "image_reader_writer": reader,
        "transpose_forward": list(transpose), "transpose_backward": [transpose.index(i) for i in range(3)],
        "configurations": configurations, "experiment_planner_used": "ExperimentPlanner", "label_manager": "LabelManager",
        "foreground_intensity_properties_per_channel": {str(c): CT_PROPERTIES for c in range(channels)},
    }


ISOTROPIC = dict(kernels=[[3, 3, 3]] * 3, strides=[[1, 1, 1], [2, 2, 2], [2, 2, 2]])
FLAT_FIRST = dict(kernels=[[1, 3, 3], [3, 3, 3], [3, 3, 3]], strides=[[1, 1, 1], [1, 2, 2], [2, 2, 2]])
LABELS = {"background": 0, "shell": 1, "core": 2, "seed": 3}


def fullres():
    """Two channels, normalised in two ways, one of them inside a mask; two folds."""
    arch = architecture("PlainConvUNet", 3, [4, 6, 8], encoder=[2, 2, 2], decoder=[2, 2], **ISOTROPIC)
    return dict(
        plans=plans("Dataset101_Fullres", {"3d_fullres": configuration("3d_fullres", [24, 20, 24], [1.0, 1.0, 1.0],
            ["CTNormalization", "ZScoreNormalization"], [False, True], arch)}, 2),
        dataset={"channel_names": {"0": "CT", "1": "T1"}, "labels": LABELS, "numTraining": 4, "file_ending": ".nii.gz"},
        images=[("first", (28, 36, 33), (1.3, 0.9, 1.1), "flipped"), ("second", (25, 27, 30), (0.9, 1.2, 1.0), "oblique")],
        folds=[0, 1], mirror=(0, 1, 2), steps=120)


def resenc_regions():
    """A residual encoder that answers in regions; axes are transposed and the coarsest is stored last."""
    arch = architecture("ResidualEncoderUNet", 3, [4, 8, 8], encoder=[1, 2, 2], decoder=[1, 1], **FLAT_FIRST)
    return dict(
        plans=plans("Dataset102_Regions", {"3d_fullres": configuration("3d_fullres", [10, 28, 24], [2.4, 1.1, 0.9],
            ["ZScoreNormalization"], [False], arch)}, 1, transpose=(2, 0, 1)),
        dataset={"channel_names": {"0": "FLAIR"}, "labels": {"background": 0, "whole": [1, 2, 3], "core": [2, 3], "seed": 3},
                 "regions_class_order": [1, 2, 3], "numTraining": 4, "file_ending": ".nii.gz"},
        images=[("first", (31, 35, 16), (1.0, 0.9, 2.2), "flipped"), ("second", (26, 33, 15), (1.2, 1.0, 2.6), "straight")],
        folds=[0], mirror=(0, 1, 2), steps=120)


def flat():
    """Slices of a volume that is reoriented when it is read; a label to be ignored; probabilities."""
    arch = architecture("PlainConvUNet", 2, [4, 6, 8], [[3, 3]] * 3, [[1, 1], [2, 2], [2, 2]], [2, 2, 2], [2, 2])
    return dict(
        plans=plans("Dataset103_Flat", {"2d": configuration("2d", [24, 28], [1.0, 1.0], ["ZScoreNormalization"], [True], arch)}, 1,
            reader="NibabelIOWithReorient"),
        dataset={"channel_names": {"0": "T2"}, "labels": {"background": 0, "shell": 1, "core": 2, "ignore": 3}, "numTraining": 4,
                 "file_ending": ".nii.gz"},
        images=[("first", (32, 30, 9), (0.9, 0.8, 4.0), "permuted"), ("second", (8, 37, 27), (3.0, 1.0, 1.1), "flipped")],
        folds=["all"], mirror=(0, 1), steps=120, probabilities=True)


def anisotropic():
    """Slices far apart: they are resized for themselves; mirrored along two axes only."""
    arch = architecture("PlainConvUNet", 3, [4, 6, 8], encoder=[2, 2, 2], decoder=[2, 2], **FLAT_FIRST)
    return dict(
        plans=plans("Dataset104_Anisotropic", {"3d_fullres": configuration("3d_fullres", [8, 28, 24], [4.0, 1.0, 1.0],
            ["ZScoreNormalization"], [False], arch)}, 1),
        dataset={"channel_names": {"0": "T2"}, "labels": LABELS, "numTraining": 4, "file_ending": ".nii.gz"},
        images=[("first", (11, 40, 36), (5.0, 0.9, 0.8), "oblique"), ("second", (24, 27, 26), (1.3, 1.0, 1.1), "straight")],
        folds=[0], mirror=(0, 1), steps=120, trainer="nnUNetTrainer_onlyMirror01")


def cascade():
    """A coarse network, one at full resolution that sees its labels, and one that sees the image alone."""
    arch = architecture("PlainConvUNet", 3, [4, 6, 8], encoder=[2, 2, 2], decoder=[2, 2], **ISOTROPIC)
    low = configuration("3d_lowres", [16, 16, 16], [1.9, 2.1, 2.0], ["ZScoreNormalization"], [False], arch, next_stage="3d_cascade_fullres")
    full = configuration("3d_fullres", [20, 24, 20], [1.0, 1.0, 1.0], ["ZScoreNormalization"], [False], arch)
    return dict(
        plans=plans("Dataset105_Cascade", {"3d_lowres": low, "3d_fullres": full,
            "3d_cascade_fullres": {"inherits_from": "3d_fullres", "previous_stage": "3d_lowres"}}, 1),
        dataset={"channel_names": {"0": "T1"}, "labels": {"background": 0, "shell": 1, "core": 2}, "numTraining": 4, "file_ending": ".nii.gz"},
        images=[("first", (30, 28, 33), (1.1, 1.2, 0.9), "flipped")], folds=[0], mirror=(0, 1, 2), steps=120,
        order=["3d_lowres", "3d_fullres", "3d_cascade_fullres"], ensemble=["3d_lowres", "3d_fullres"])


def batch_norm():
    """The trainer that replaces instance by batch normalisation; also as an exported archive."""
    arch = architecture("PlainConvUNet", 3, [4, 6, 8], encoder=[2, 2, 2], decoder=[2, 2], **ISOTROPIC)
    return dict(
        plans=plans("Dataset106_BatchNorm", {"3d_fullres": configuration("3d_fullres", [20, 20, 20], [1.0, 1.0, 1.0],
            ["RescaleTo01Normalization"], [False], arch)}, 1),
        dataset={"channel_names": {"0": "rescale_to_0_1"}, "labels": LABELS, "numTraining": 4, "file_ending": ".nii.gz"},
        images=[("first", (29, 27, 26), (1.0, 1.1, 1.2), "straight")], folds=[0], mirror=(0, 1, 2), steps=120,
        trainer="nnUNetTrainerBN", export=True, constant=True)


def old_plans():
    """Plans and a checkpoint as they were before the network was written out in them; nothing is said of mirroring."""
    old = {
        "data_identifier": "nnUNetPlans_3d_fullres", "preprocessor_name": "DefaultPreprocessor", "batch_size": 2,
        "patch_size": [20, 24, 20], "median_image_size_in_voxels": [30.0, 30.0, 30.0], "spacing": [1.0, 1.0, 1.0],
        "normalization_schemes": ["CTNormalization"], "use_mask_for_norm": [False], "UNet_class_name": "PlainConvUNet",
        "UNet_base_num_features": 4, "n_conv_per_stage_encoder": [2, 2, 2], "n_conv_per_stage_decoder": [2, 2],
        "num_pool_per_axis": [2, 2, 2], "pool_op_kernel_sizes": [[1, 1, 1], [2, 2, 2], [2, 2, 2]],
        "conv_kernel_sizes": [[3, 3, 3], [3, 3, 3], [3, 3, 3]], "unet_max_num_features": 6, **RESAMPLING, "batch_dice": True,
    }
    p = plans("Dataset107_Old", {"3d_fullres": old}, 1)
    p["foreground_intensity_properties_by_modality"] = p.pop("foreground_intensity_properties_per_channel")
    return dict(
        plans=p, dataset={"modality": {"0": "CT"}, "labels": {"background": 0, "shell": 1, "core": 2}, "numTraining": 4, "file_ending": ".nii.gz"},
        images=[("first", (27, 29, 28), (1.2, 1.0, 1.1), "flipped")], folds=[0], mirror=(0, 1, 2), steps=120, old=True)


def torch_resampling(slices):
    """Linear interpolation by PyTorch, as the planners whose names end in `torchres` have it."""
    of = lambda is_seg: {"is_seg": is_seg, "force_separate_z": slices, "memefficient_seg_resampling": False}
    return {f"resampling_fn_{what}{end}": "resample_torch_fornnunet" if not end else of(what == "seg")
            for what in ("data", "seg", "probabilities") for end in ("", "_kwargs")}


def torchres():
    """A cascade whose images, logits and labels PyTorch resamples."""
    arch = architecture("ResidualEncoderUNet", 3, [4, 6, 8], encoder=[1, 2, 2], decoder=[1, 1], **ISOTROPIC)
    low = configuration("3d_lowres", [16, 16, 16], [1.9, 2.1, 2.0], ["ZScoreNormalization"], [False], arch, next_stage="3d_cascade_fullres")
    full = configuration("3d_fullres", [20, 24, 20], [1.0, 1.0, 1.0], ["ZScoreNormalization"], [False], arch)
    for one in (low, full):
        one.update(torch_resampling(False))
    p = plans("Dataset108_TorchRes", {"3d_lowres": low, "3d_fullres": full,
        "3d_cascade_fullres": {"inherits_from": "3d_fullres", "previous_stage": "3d_lowres"}}, 1)
    return dict(
        plans=p, dataset={"channel_names": {"0": "T1"}, "labels": LABELS, "numTraining": 4, "file_ending": ".nii.gz"},
        images=[("first", (30, 28, 33), (1.2, 1.3, 0.8), "flipped")], folds=[0], mirror=(0, 1, 2), steps=120,
        order=["3d_lowres", "3d_cascade_fullres"])


def torchres_slices():
    """PyTorch resamples, slices that are far apart for themselves; a cascade in which that is done to labels, too."""
    arch = architecture("PlainConvUNet", 3, [4, 6, 8], encoder=[2, 2, 2], decoder=[2, 2], **FLAT_FIRST)
    low = configuration("3d_lowres", [8, 16, 16], [5.5, 1.9, 2.0], ["ZScoreNormalization"], [False], arch, next_stage="3d_cascade_fullres")
    full = configuration("3d_fullres", [8, 28, 24], [4.0, 1.0, 1.0], ["ZScoreNormalization"], [False], arch)
    for one in (low, full):
        one.update(torch_resampling(None))
    return dict(
        plans=plans("Dataset109_TorchResSlices", {"3d_lowres": low, "3d_fullres": full,
            "3d_cascade_fullres": {"inherits_from": "3d_fullres", "previous_stage": "3d_lowres"}}, 1),
        dataset={"channel_names": {"0": "T2"}, "labels": LABELS, "numTraining": 4, "file_ending": ".nii.gz"},
        images=[("first", (11, 40, 36), (5.0, 0.9, 0.8), "oblique")], folds=[0], mirror=(0, 1), steps=120,
        order=["3d_lowres", "3d_cascade_fullres"])


def pictures():
    """Colour pictures, of which a file holds all channels."""
    arch = architecture("PlainConvUNet", 2, [4, 6, 8], [[3, 3]] * 3, [[1, 1], [2, 2], [2, 2]], [2, 2, 2], [2, 2])
    return dict(
        plans=plans("Dataset110_Pictures", {"2d": configuration("2d", [40, 36], [1.0, 1.0], ["RGBTo01Normalization"] * 3, [False] * 3, arch)},
            3, reader="NaturalImage2DIO"),
        dataset={"channel_names": {"0": "R", "1": "G", "2": "B"}, "labels": {"background": 0, "shell": 1, "core": 2}, "numTraining": 4,
                 "file_ending": ".png"},
        images=[("first", (1, 61, 75), (999, 1, 1), None), ("second", (1, 34, 50), (999, 1, 1), None)],
        folds=[0], mirror=(0, 1), steps=120, kind="pictures")


def stacks():
    """TIFF files of many pages: of one image the spacing is said, of the other it is not."""
    arch = architecture("PlainConvUNet", 3, [4, 6, 8], encoder=[2, 2, 2], decoder=[2, 2], **ISOTROPIC)
    return dict(
        plans=plans("Dataset111_Stacks", {"3d_fullres": configuration("3d_fullres", [20, 24, 20], [1.0, 1.1, 0.9],
            ["ZScoreNormalization"] * 2, [False, True], arch)}, 2, reader="Tiff3DIO"),
        dataset={"channel_names": {"0": "nuclei", "1": "membranes"}, "labels": LABELS, "numTraining": 4, "file_ending": ".tif"},
        images=[("first", (26, 33, 35), (1.4, 0.9, 0.8), None), ("second", (22, 29, 27), None, None)],
        folds=[0], mirror=(0, 1, 2), steps=120, kind="stacks")


def primus(trainer="nnUNet_Primus_S_Trainer"):
    """A trainer that makes a network of its own, whatever the plans say."""
    arch = architecture("PlainConvUNet", 3, [4, 6, 8], encoder=[2, 2, 2], decoder=[2, 2], **ISOTROPIC)
    return dict(
        plans=plans("Dataset112_Primus", {"3d_fullres": configuration("3d_fullres", [24, 16, 24], [1.0, 1.0, 1.0],
            ["ZScoreNormalization"], [False], arch)}, 1),
        dataset={"channel_names": {"0": "T1"}, "labels": LABELS, "numTraining": 4, "file_ending": ".nii.gz"},
        images=[("first", (28, 36, 33), (1.3, 0.9, 1.1), "flipped")], folds=[0], mirror=(0, 1, 2), steps=60, rate=1e-3, trainer=trainer)


def postprocessing():
    """A label map of many components, and what nnU-Net's steps of post-processing make of it, one after the other."""
    folder = HERE / "postprocessing"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    g = np.random.default_rng(11)
    field = np.stack([smooth((19, 26, 23), g, 12) + g.normal(0, 0.12, (19, 26, 23)) for _ in range(4)])
    seg = np.where(field.max(0) > 0.25, field.argmax(0) + 1, 0).astype(np.uint8)
    # Two components of the same size, the largest of their label: both stay.
    seg[seg == 4] = 0
    seg[1:4, 1:4, 1:4] = 4
    seg[12:15, 20:23, 3:6] = 4
    seg[8, 8, 8] = 4
    nibabel.save(nibabel.Nifti1Image(seg.transpose(2, 1, 0), np.eye(4)), folder / "before.nii.gz")
    steps = [{"labels_or_regions": [1, 2, 3, 4]}, {"labels_or_regions": 1}, {"labels_or_regions": [[2, 3]]}, {"labels_or_regions": 4}]
    fn = remove_all_but_largest_component_from_segmentation
    kwargs = [{"labels_or_regions": [tuple(r) if isinstance(r, list) else r for r in s["labels_or_regions"]]}
              if isinstance(s["labels_or_regions"], list) else s for s in steps]
    for count in range(1, len(steps) + 1):
        after = apply_postprocessing(seg, [fn] * count, kwargs[:count])
        print(f"postprocessing: {count} steps change {np.sum(after != seg)} of {np.sum(seg > 0)} voxels, {np.unique(after)}")
        nibabel.save(nibabel.Nifti1Image(after.transpose(2, 1, 0), np.eye(4)), folder / f"after_{count}.nii.gz")
    (folder / "postprocessing.json").write_text(json.dumps({
        "postprocessing_fns": [fn.__name__] * len(steps), "postprocessing_kwargs": steps}, indent=2))


CASES = dict(fullres=fullres, resenc_regions=resenc_regions, flat=flat, anisotropic=anisotropic, cascade=cascade,
             batch_norm=batch_norm, old_plans=old_plans, torchres=torchres, torchres_slices=torchres_slices, pictures=pictures, stacks=stacks)


# Cases that are written to another folder.
LARGE = dict(primus=primus, primus_v2=lambda: primus("nnUNet_PrimusV2S_Trainer"), primus_v3=lambda: primus("nnUNet_PrimusV3S_Trainer"))


# -------------------------------------------------------------------------------------------------------------- training

def train(trainer, images, labels, previous, steps, seed, rate):
    """Steps of Adam on random patches of the images as nnU-Net prepares them, so that what is predicted has some shape."""
    cm, pm, lm = trainer.configuration_manager, trainer.plans_manager, trainer.label_manager
    g = np.random.default_rng(seed)
    cases = []
    for files, label in zip(images, labels):
        data, seg, _ = cm.preprocessor_class(verbose=False).run_case(files, label, pm, cm, trainer.dataset_json)
        if previous is not None:
            before = previous / Path(label).name
            _, coarse, _ = cm.preprocessor_class(verbose=False).run_case(files, str(before), pm, cm, trainer.dataset_json)
            data = np.vstack((data, convert_labelmap_to_one_hot(coarse[0], lm.foreground_labels, data.dtype)))
        cases.append((data.astype(np.float32), seg[0].astype(np.int64)))
    patch = cm.patch_size
    optimizer = torch.optim.Adam(trainer.network.parameters(), rate)
    for _ in range(steps):
        xs, ys = [], []
        for _ in range(2):
            data, seg = cases[g.integers(len(cases))]
            if len(patch) == 2:
                z = g.integers(data.shape[1])
                data, seg = data[:, z], seg[z]
            pads = [max(0, p - n) for p, n in zip(patch, seg.shape)]
            data = np.pad(data, [(0, 0)] + [(0, p) for p in pads])
            seg = np.pad(seg, [(0, p) for p in pads])
            centre = g.permutation(np.argwhere(seg > 0))[0] if np.any(seg > 0) else np.zeros(len(patch), int)
            at = tuple(slice(s, s + p) for s, p in
                       ((int(np.clip(c - g.integers(p), 0, n - p)), p) for c, n, p in zip(centre, seg.shape, patch)))
            xs.append(data[(slice(None), *at)])
            ys.append(np.maximum(seg[at], 0))
        x, y = torch.from_numpy(np.stack(xs)), torch.from_numpy(np.stack(ys))
        out = trainer.network(x)
        out = out if torch.is_tensor(out) else out[0]
        if lm.has_regions:
            truth = torch.stack([sum(y == v for v in (r if isinstance(r, tuple) else (r,))) > 0 for r in lm.foreground_regions], 1)
            weights = torch.full((out.shape[1], *[1] * len(patch)), 4.0)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(out, truth.float(), pos_weight=weights)
        else:
            # Rare labels count more, so that each is predicted somewhere.
            loss = torch.nn.functional.cross_entropy(out, y.clamp(max=out.shape[1] - 1), torch.tensor([1.0, 2.0, 3.0, 8.0])[:out.shape[1]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss)


def build(case, configuration_name, fold, root, images, labels, previous, seed):
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    trainer_class = recursive_find_trainer_class_by_name(case.get("trainer", "nnUNetTrainer"))
    p = copy.deepcopy(case["plans"])
    trainer = trainer_class({**p, "continue_training": False}, configuration_name, fold, copy.deepcopy(case["dataset"]),
                            device=torch.device("cpu"))
    trainer.initialize()
    trainer.inference_allowed_mirroring_axes = case["mirror"]
    # Momentum of one step of nnU-Net's own optimiser, on the first fold, as checkpoints hold it.
    loss = train(trainer, images, labels, previous, case["steps"], seed, case.get("rate", 1e-2))
    if fold == case["folds"][0]:
        trainer.optimizer.step()
    for key, value in [("train_losses", np.float32(loss)), ("val_losses", np.float32(loss)), ("lrs", 0.01),
                       ("dice_per_class_or_region", [np.float64(0.5), np.float64(0.25)]), ("mean_fg_dice", np.float64(0.375)),
                       ("ema_fg_dice", np.float64(0.375))]:
        trainer.logger.local_logger.log(key, value, 0) if hasattr(trainer.logger, "local_logger") else trainer.logger.log(key, value, 0)
    trainer._best_ema = np.float64(0.375)
    folder = root / p["dataset_name"] / f"{type(trainer).__name__}__{p['plans_name']}__{configuration_name}"
    (folder / f"fold_{fold}").mkdir(parents=True, exist_ok=True)
    file = folder / f"fold_{fold}" / "checkpoint_final.pth"
    trainer.save_checkpoint(str(file))
    if case.get("old"):
        checkpoint = torch.load(file, weights_only=False)
        checkpoint["init_args"]["unpack_dataset"] = True
        del checkpoint["inference_allowed_mirroring_axes"]
        torch.save(checkpoint, file)
    (folder / "plans.json").write_text(json.dumps(p, indent=2))
    (folder / "dataset.json").write_text(json.dumps(case["dataset"], indent=2))
    return folder


# ------------------------------------------------------------------------------------------------------------ prediction

def predict(folder, folds, images, output, previous=None, probabilities=False, single=False, gaussian=True):
    output.mkdir(parents=True, exist_ok=True)
    half, weights = torch.half, predict_from_raw_data.compute_gaussian
    if single:
        torch.half = torch.float32
        single_gaussian = lambda *a, **k: compute_gaussian(*a, dtype=torch.float32, **k)
        single_gaussian.cache_clear = compute_gaussian.cache_clear
        predict_from_raw_data.compute_gaussian = single_gaussian
    try:
        predictor = nnUNetPredictor(device=torch.device("cpu"), allow_tqdm=False, use_gaussian=gaussian)
        predictor.initialize_from_trained_model_folder(str(folder), folds, "checkpoint_final.pth")
        predictor.predict_from_files_sequential(str(images), str(output), probabilities, True,
                                                str(previous) if previous else None)
    finally:
        torch.half, predict_from_raw_data.compute_gaussian = half, weights
    for extra in ("predict_from_raw_data_args.json", "dataset.json", "plans.json"):
        (output / extra).unlink(missing_ok=True)
    for extra in output.glob("*.pkl"):
        extra.unlink()


def read(path):
    if path.name.endswith(".nii.gz"):
        return np.asanyarray(nibabel.load(path).dataobj)
    return skimage.io.imread(path) if path.suffix == ".png" else tifffile.imread(path)


def constant(name):
    """Predicts with all voxels of a window counting alike."""
    if not CASES[name]().get("constant"):
        return
    for model in sorted((HERE / name / "results").glob("*/*")):
        configuration = model.name.split("__")[-1]
        predict(model, tuple(CASES[name]()["folds"]), HERE / name / "images", HERE / name / "expected" / f"{configuration}_constant", single=True, gaussian=False)


def make(name):
    case = (CASES | LARGE)[name]()
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    images, expected = folder / "images", folder / "expected"
    images.mkdir(parents=True)
    truth = SCRATCH / name
    truth.mkdir()
    files, labels, seed = [], [], sum(name.encode())
    kind = case.get("kind", "volumes")
    channels = len(case["dataset"].get("channel_names", case["dataset"].get("modality")))
    largest = max(v for v in np.hstack(list(case["dataset"]["labels"].values())))
    for number, (case_name, shape, spacing, orientation) in enumerate(case["images"]):
        # A picture is the slice in the middle of an object.
        image, label = phantom((9, *shape[1:]) if kind == "pictures" else shape, seed + number)
        if kind == "pictures":
            image, label = image[4:5], label[4:5]
        elif kind == "stacks":
            image = np.maximum(image, 0)
        files.append(write_case(kind, images, case_name, image, channels, spacing, orientation))
        labels.append(write_labels(kind, truth, case_name, np.minimum(label, largest), spacing, orientation))

    agreement = {}
    models = {}
    for configuration_name in case.get("order", list(case["plans"]["configurations"])):
        before = case["plans"]["configurations"][configuration_name].get("previous_stage")
        previous = expected / before if before else None
        for fold in case["folds"]:
            model = build(case, configuration_name, fold, folder / "results", files, labels, previous, seed + 7 * len(models) + (fold if fold != "all" else 0))
        models[configuration_name] = model
        out = expected / configuration_name
        predict(model, tuple(case["folds"]), images, out, previous, case.get("probabilities", False))
        exact = expected / f"{configuration_name}_f32"
        predict(model, tuple(case["folds"]), images, exact, previous, single=True)
        for file in sorted(out.glob(f"*{ENDINGS[kind]}")):
            a, b = read(file), read(exact / file.name)
            agreement[f"{configuration_name}/{file.name}"] = float(np.mean(a == b))
            print(f"{name}/{configuration_name}/{file.name}: {a.shape} labels {np.unique(a, return_counts=True)}, half = single in {np.mean(a == b):.6f}")
    (expected / "agreement.json").write_text(json.dumps(agreement, indent=2) + "\n")

    if name in CASES:
        constant(name)
    if "ensemble" in case:
        from nnunetv2.ensembling.ensemble import average_probabilities
        parts = []
        for member in case["ensemble"]:
            part = truth / f"probabilities_{member}"
            predict(models[member], tuple(case["folds"]), images, part, probabilities=True)
            parts.append(part)
        done = expected / "ensemble"
        done.mkdir()
        for case_name, *_ in case["images"]:
            mean = average_probabilities([str(p / f"{case_name}.npz") for p in parts])
            like = nibabel.load(expected / case["ensemble"][0] / f"{case_name}.nii.gz")
            nibabel.save(nibabel.Nifti1Image(mean.argmax(0).transpose(2, 1, 0).astype(np.uint8), like.affine), done / f"{case_name}.nii.gz")

    if case.get("export"):
        from nnunetv2.model_sharing import model_export
        root = SCRATCH / "nnUNet_results"
        shutil.copytree(folder / "results", root, dirs_exist_ok=True)
        for model in root.glob("*/*"):
            (model / "dataset_fingerprint.json").write_text("{}")
            for fold in model.glob("fold_*"):
                (fold / "progress.png").write_bytes(b"")
                (fold / "validation").mkdir(exist_ok=True)
                (fold / "validation" / "summary.json").write_text("{}")
        model_export.export_pretrained_model(106, str(folder / "exported.zip"), ("3d_fullres",), case["trainer"], "nnUNetPlans", (0,))
    for log in folder.rglob("training_log*"):
        log.unlink()


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in LARGE:
        HERE = Path(sys.argv[2])
        make(sys.argv[1])
        sys.exit()
    for chosen in sys.argv[1:] or [*CASES, "postprocessing"]:
        if chosen == "postprocessing":
            postprocessing()
        elif chosen == "constant":
            for name in CASES:
                constant(name)
        else:
            make(chosen)
    shutil.rmtree(SCRATCH)
