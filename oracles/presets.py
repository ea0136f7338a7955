"""nnU-Net's plans of its presets, by its own planners.

    pip install nnunetv2==2.8.1
    python oracles/presets.py

Writes oracles/presets.json: for fingerprints of data sets, the configurations that `ExperimentPlanner` and
`nnUNetPlannerResEncM`, `L` and `XL` of nnU-Net 2.8.1 (dynamic_network_architectures 0.4.4) make. The planners count the
outputs of a network's layers and never run it, so networks are made on PyTorch's device "meta", without memory.

Lists of axes are in the order of the fingerprint: nnU-Net's own, with the coarsest axis first, is undone here.
"""

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path

FOLDER = tempfile.mkdtemp()
for name in ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results"):
    os.environ[name] = FOLDER + "/" + name

import torch
from nnunetv2.experiment_planning.experiment_planners.default_experiment_planner import ExperimentPlanner
from nnunetv2.experiment_planning.experiment_planners.residual_unets.residual_encoder_unet_planners import (
    nnUNetPlannerResEncL,
    nnUNetPlannerResEncM,
    nnUNetPlannerResEncXL,
)

PLANNERS = {
    "nnunet": ExperimentPlanner,
    "resenc-m": nnUNetPlannerResEncM,
    "resenc-l": nnUNetPlannerResEncL,
    "resenc-xl": nnUNetPlannerResEncXL,
}


def alike(count, shape, spacing):
    return [(shape, spacing)] * count


# name: channels, labels with the background, and shapes after cropping with spacings
DATASETS = {
    "brain": (4, 4, alike(484, [138, 170, 138], [1, 1, 1])),
    "hippocampus": (1, 3, alike(260, [36, 50, 35], [1, 1, 1])),
    "liver": (1, 3, [([400 + 2 * i, 512, 512], [1 + 0.01 * (i % 5), 0.7 + 0.003 * i, 0.7 + 0.003 * i]) for i in range(131)]),
    "one_liver": (1, 3, alike(1, [482, 512, 512], [1, 0.767578125, 0.767578125])),
    "prostate": (2, 3, [([18 + i % 5, 320 - i % 3, 319], [3.6, 0.62, 0.62]) for i in range(32)]),
    "heart": (1, 4, [([10, 237, 208], [10, 1.5625, 1.5625]), ([18, 240, 220], [5, 1.40625, 1.40625])] * 50),
    "heart_in_tenths": (1, 4, [([8 + i % 4, 200 + 3 * i, 190 + i], [10 - i % 3 * 2.5, 1.3 + 0.02 * i, 1.3 + 0.02 * i]) for i in range(20)]),
    "slices": (3, 2, alike(120, [1, 565, 584], [999, 1, 1])),
    "few_slices": (1, 6, [([1, 1200 + 10 * i, 800], [999, 0.5, 0.75]) for i in range(7)]),
    "one_small": (1, 2, alike(1, [40, 60, 50], [1.5, 1.25, 1.25])),
    "very_large": (1, 2, alike(20, [1000, 1000, 1000], [0.5, 0.5, 0.5])),
    "whole_body": (1, 105, [([300 + 5 * i, 400 - i, 420 - 2 * i], [1.5, 1.5, 1.5]) for i in range(30)]),
    "coronal": (1, 2, [([320 + i, 24, 290], [0.8, 4.5, 0.9]) for i in range(15)]),
    "thin": (1, 3, alike(40, [4, 640, 640], [8, 0.35, 0.35])),
    "long": (1, 3, alike(12, [2000, 120, 130], [1, 0.9, 0.9])),
    "tiny": (1, 2, alike(9, [9, 12, 11], [1, 1, 1])),
    "halves": (2, 3, [([35, 47, 61], [1, 1, 1]), ([36, 48, 62], [1, 1, 1])] * 11),
    "lung": (1, 2, [([240 + 3 * i, 512, 512], [1.25 - 0.004 * i, 0.75, 0.75]) for i in range(63)]),
    "mouse": (1, 3, alike(50, [500, 620, 480], [0.05, 0.04, 0.045])),
}


def distinct(cases):
    """Cases in a row that are alike, as [count, shape, spacing]."""
    runs = []
    for shape, spacing in cases:
        if runs and runs[-1][1:] == [shape, spacing]:
            runs[-1][0] += 1
        else:
            runs.append([1, shape, spacing])
    return runs


def plans(planner, channels, labels, cases):
    raw, preprocessed = Path(FOLDER, "nnUNet_raw", "Dataset001_X"), Path(FOLDER, "nnUNet_preprocessed", "Dataset001_X")
    raw.mkdir(parents=True, exist_ok=True)
    preprocessed.mkdir(parents=True, exist_ok=True)
    names = [f"case_{number}" for number in range(len(cases))]
    (raw / "dataset.json").write_text(json.dumps({
        "channel_names": {str(channel): "MRI" for channel in range(channels)},
        "labels": {"background": 0, **{f"label_{label}": label for label in range(1, labels)}},
        "numTraining": len(cases),
        "file_ending": ".nii.gz",
        "dataset": {name: {"images": [f"{name}.nii.gz"], "label": f"{name}.nii.gz"} for name in names},
    }))
    (preprocessed / "dataset_fingerprint.json").write_text(json.dumps({
        "spacings": [spacing for _, spacing in cases],
        "shapes_after_crop": [shape for shape, _ in cases],
        "median_relative_size_after_cropping": 1.0,
        "foreground_intensity_properties_per_channel": {},
    }))
    for stale in preprocessed.glob("nnUNet*Plans.json"):
        stale.unlink()
    own = planner("Dataset001_X")
    own.determine_reader_writer = lambda: ExperimentPlanner
    with contextlib.redirect_stdout(io.StringIO()):
        return own.plan_experiment()


def configuration(plan, backward):
    network = plan["architecture"]["arch_kwargs"]
    dimensions = len(plan["patch_size"])

    def stored(lengths):
        """In the order of the fingerprint; a slice has one voxel, and a kernel and a stride of one, across its plane."""
        return [lengths[axis] for axis in backward] if dimensions == 3 else list(lengths)

    return {
        "spacing": [float(length) for length in stored(plan["spacing"])],
        "patch_size": [int(extent) for extent in stored(plan["patch_size"])],
        "batch_size": int(plan["batch_size"]),
        "features": list(network["features_per_stage"]),
        "strides": [stored(stride) for stride in network["strides"]],
        "kernels": [stored(kernel) for kernel in network["kernel_sizes"]],
        "encoder": list(network.get("n_blocks_per_stage", network.get("n_conv_per_stage"))),
        "decoder": list(network["n_conv_per_stage_decoder"]),
        "batch_dice": plan["batch_dice"],
    }


def main():
    torch.set_default_device("meta")
    found = []
    for name, (channels, labels, cases) in DATASETS.items():
        presets = {}
        for preset, planner in PLANNERS.items():
            made = plans(planner, channels, labels, cases)
            backward = made["transpose_backward"]
            named = made["configurations"].items()
            presets[preset] = {
                of: configuration(plan, backward) for of, plan in named if of != "3d_cascade_fullres"
            }
        found.append({
            "name": name,
            "channels": channels,
            "labels": labels,
            "cases": distinct(cases),
            "presets": presets,
        })
        print(name, {preset: {of: (plan["patch_size"], plan["batch_size"]) for of, plan in all.items()} for preset, all in presets.items()})
    lines = [json.dumps(dataset, separators=(",", ":")) for dataset in found]
    Path(__file__).with_name("presets.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


main()
