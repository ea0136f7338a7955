"""Prediction with a model folder of nnU-Net here and by nnUNetv2_predict_from_modelfolder on the CPU, alternating in one run.

    python benches/predict/nnunet.py [--shape 160,160,128] [--patch 128,128,128] [--features 32,64,128,256,320,320] [--rounds 3] [--ram 850MiB]
    python benches/predict/nnunet.py --net resenc
    python benches/predict/nnunet.py --patch 128,128 --features 32,64,128,256,512,512

Makes a folder of the network that nnU-Net plans for CT, with random weights, and one case. A patch of two numbers is the configuration 2d. Needs cargo, and nnunetv2, torch, nibabel and numpy in
the Python that runs this. Memory is the most that all processes of a command have at a time, each page counted once. Labels of both are compared; with random weights logits lie close together, so that sums in
half precision, which nnU-Net has, change more of them than with trained ones.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
from processes import measured

ROOT = Path(__file__).parents[2]

parser = argparse.ArgumentParser()
numbers = lambda text: [int(number) for number in text.split(",")]
parser.add_argument("--shape", type=numbers, default=[160, 160, 128])
parser.add_argument("--patch", type=numbers, default=[128, 128, 128])
parser.add_argument("--features", type=numbers, default=[32, 64, 128, 256, 320, 320])
parser.add_argument("--classes", type=int, default=4)
parser.add_argument("--net", choices=["plain", "resenc"], default="plain")
parser.add_argument("--binary", type=Path, help="this one of ours, in place of building it")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--ram", help="our limit; without it, what the program takes of itself")
parser.add_argument("--mirror", action="store_true", help="eight times the work, as nnU-Net does it unless it is told otherwise")
args = parser.parse_args()


def make_model(folder):
    import torch
    from nnunetv2.utilities.get_network_from_plans import get_network_from_plans

    stages, axes = len(args.features), len(args.patch)
    blocks = {"n_conv_per_stage": [2] * stages, "n_conv_per_stage_decoder": [2] * (stages - 1)}
    if args.net == "resenc":
        blocks = {"n_blocks_per_stage": [1, 3, 4, 6, 6, 6, 6][:stages], "n_conv_per_stage_decoder": [1] * (stages - 1)}
    arguments = {
        "n_stages": stages, "features_per_stage": args.features, "conv_op": f"torch.nn.modules.conv.Conv{axes}d",
        "kernel_sizes": [[3] * axes] * stages, "strides": [[1] * axes] + [[2] * axes] * (stages - 1), **blocks,
        "conv_bias": True, "norm_op": f"torch.nn.modules.instancenorm.InstanceNorm{axes}d",
        "norm_op_kwargs": {"eps": 1e-05, "affine": True}, "dropout_op": None, "dropout_op_kwargs": None,
        "nonlin": "torch.nn.LeakyReLU", "nonlin_kwargs": {"inplace": True},
    }
    imported = ["conv_op", "norm_op", "dropout_op", "nonlin"]
    of_net = {"plain": "PlainConvUNet", "resenc": "ResidualEncoderUNet"}[args.net]
    name = f"dynamic_network_architectures.architectures.unet.{of_net}"
    called = "2d" if axes == 2 else "3d_fullres"
    torch.manual_seed(0)
    net = get_network_from_plans(name, arguments, imported, 1, args.classes, deep_supervision=True)
    resampling = {"resampling_fn_" + what: "resample_data_or_seg_to_shape" for what in ("data", "seg", "probabilities")}
    for what, order in (("data", 3), ("seg", 1), ("probabilities", 1)):
        resampling[f"resampling_fn_{what}_kwargs"] = {"is_seg": what == "seg", "order": order, "order_z": 0, "force_separate_z": None}
    configuration = {
        "data_identifier": f"nnUNetPlans_{called}", "preprocessor_name": "DefaultPreprocessor", "batch_size": 2, "patch_size": args.patch,
        "median_image_size_in_voxels": args.shape[-axes:], "spacing": [1.5] * axes, "normalization_schemes": ["CTNormalization"],
        "use_mask_for_norm": [False], **resampling, "batch_dice": False,
        "architecture": {"network_class_name": name, "arch_kwargs": arguments, "_kw_requires_import": imported},
    }
    properties = {"mean": 0.0, "median": 0.0, "std": 100.0, "min": -300.0, "max": 300.0, "percentile_00_5": -250.0, "percentile_99_5": 250.0}
    plans = {
        "dataset_name": "Dataset001_Bench", "plans_name": "nnUNetPlans", "image_reader_writer": "SimpleITKIO", "transpose_forward": [0, 1, 2],
        "transpose_backward": [0, 1, 2], "configurations": {called: configuration}, "label_manager": "LabelManager",
        "foreground_intensity_properties_per_channel": {"0": properties},
    }
    labels = {"background": 0, **{f"organ {i}": i for i in range(1, args.classes)}}
    (folder / "fold_0").mkdir(parents=True)
    (folder / "plans.json").write_text(json.dumps(plans))
    (folder / "dataset.json").write_text(json.dumps({"channel_names": {"0": "CT"}, "labels": labels, "numTraining": 1, "file_ending": ".nii.gz"}))
    torch.save({
        "network_weights": net.state_dict(), "trainer_name": "nnUNetTrainer", "init_args": {"configuration": called},
        "inference_allowed_mirroring_axes": tuple(range(axes)),
    }, folder / "fold_0/checkpoint_final.pth")


def make_case(folder):
    import nibabel

    random = numpy.random.default_rng(0)
    coarse = random.normal(0, 150, [max(2, n // 16) for n in args.shape])
    image = coarse
    for axis, n in enumerate(args.shape):
        places = numpy.linspace(0, image.shape[axis] - 1, n)
        image = numpy.apply_along_axis(lambda line: numpy.interp(places, numpy.arange(len(line)), line), axis, image)
    folder.mkdir()
    nibabel.save(nibabel.Nifti1Image(image.astype(numpy.float32), numpy.diag([1.2, 1.3, 1.5, 1])), folder / "case_0000.nii.gz")


def main():
    import nibabel

    plimsoll = args.binary
    if not plimsoll:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "plimsoll-cli"], cwd=ROOT, check=True)
        plimsoll = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/plimsoll"
    threads = str(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model, images, ours, theirs = (folder / name for name in ("model", "images", "ours", "theirs"))
        make_model(model)
        make_case(images)
        tta = [] if args.mirror else ["--disable_tta"]
        limit = ["--ram", args.ram] if args.ram else []
        commands = {
            "plimsoll": ([plimsoll, "predict", "-m", model, "-i", images, "-o", ours, "--overwrite", "--threads", threads, *limit, *tta], {}),
            "nnU-Net": (
                [Path(sys.executable).parent / "nnUNetv2_predict_from_modelfolder", "-i", images, "-o", theirs, "-m", model, "-f", "0",
                 "-device", "cpu", "-npp", "1", "-nps", "1", *tta],
                {"OMP_NUM_THREADS": threads, "nnUNet_def_n_proc": threads, "nnUNet_raw": "", "nnUNet_preprocessed": "", "nnUNet_results": ""},
            ),
        }
        results = {name: [] for name in commands}
        for _ in range(args.rounds):
            for name, (command, environment) in commands.items():
                results[name].append(measured(command, environment)[1:])
        labels = [numpy.asarray(nibabel.load(to / "case.nii.gz").dataobj) for to in (ours, theirs)]
    for name, found in results.items():
        ratios = [statistics.median(theirs[i] / own[i] for theirs, own in zip(found, results["plimsoll"])) for i in (0, 1)]
        seconds, size = (statistics.median(values) for values in zip(*found))
        print(f"{name:10} {seconds:7.1f} s {size / 2**20:8.0f} MiB   {ratios[0]:.2f}× {ratios[1]:.2f}×")
    print(f"labels equal in {100 * numpy.mean(labels[0] == labels[1]):.4f} % of voxels; {len(numpy.unique(labels[1]))} classes are predicted")


if __name__ == "__main__":
    main()
