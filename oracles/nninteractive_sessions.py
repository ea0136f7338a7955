"""A small model of nnInteractive, an image, and what nnInteractive's own session makes of sequences of prompts.

    PYTHONPATH=WHEEL python oracles/nninteractive_sessions.py     writes oracles/nninteractive/ (committed)
    … --keep-weights                                              keeps the trained weights

Needs the unpacked wheel of nnInteractive 2.6.0 in PYTHONPATH, nnunetv2 2.8.1 and torch. The network is a residual-encoder U-Net with seven
prompt channels, trained for some steps from random weights, so that its outputs follow objects. Every session runs on the processor.

    model/                     plans, description and weights, as nnInteractive reads them
    image.npz                  the image, 16-bit
    SEQUENCE.npz               for each step the segmentation, one bit for each voxel; for passes through the network the prompt channels,
                               and samples of the image channel and of the logits
    sequences.json             the steps, the centre, zoom or box of each pass, and the changed boxes
    points.json                profiles of points of several radii

nnInteractive draws random centres for what the greedy cover of a refinement leaves. `evenly` replaces them by evenly spaced ones, as
Plimsoll chooses them, so that boxes can be compared.
"""

import io
import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

HERE = Path(__file__).parent / "nninteractive"
for name in ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results"):
    os.environ[name] = tempfile.mkdtemp()

import numpy as np
import torch
from nnInteractive.inference.inference_session import nnInteractiveInferenceSession
from nnInteractive.interaction.point import build_point
from nnInteractive.utils import bboxes
from nnunetv2.utilities.get_network_from_plans import get_network_from_plans

torch.set_num_threads(2)
PATCH = [72, 80, 76]
SHAPE = (96, 128, 104)
# Extents of patches in training: smaller, for time.
TRAINED = [28, 32, 36]
# Every so many logits of a pass are stored.
SAMPLE = 1201
# The passes of a step whose prompt channels are stored.
STORED_PASSES = 2


# ------------------------------------------------------------------------------------------------------------------ image

def grid():
    return np.meshgrid(*[np.arange(n, dtype=np.float64) for n in SHAPE], indexing="ij")


def ellipsoid(centre, radii):
    return sum(((a - c) / r) ** 2 for a, c, r in zip(grid(), centre, radii)) < 1


OBJECTS = {"ball": ((30, 34, 36), (11, 12, 10)), "long": ((58, 70, 58), (15, 50, 17)), "edge": ((88, 100, 16), (14, 14, 12))}


def image():
    """Three bright objects in a dark body, with zeros around it."""
    g = np.random.default_rng(7)
    z, y, x = grid()
    body = ellipsoid((47, 63, 51), (46, 60, 50)) | ellipsoid(*OBJECTS["edge"])
    values = 300 + 40 * np.sin(z / 9) * np.cos(y / 13) * np.sin(x / 11 + 1)
    for place in OBJECTS.values():
        values[ellipsoid(*place)] += 260
    values += 20 * g.integers(-2, 3, SHAPE)
    values[~body] = 0
    return values.astype(np.int16)


# ------------------------------------------------------------------------------------------------------------------ model

def plans():
    return {
        "dataset_name": "Dataset901_Prompted", "plans_name": "nnUNetResEncUNetPlans",
        "original_median_spacing_after_transp": [1.0, 1.0, 1.0], "original_median_shape_after_transp": list(SHAPE),
        "image_reader_writer": "SimpleITKIO", "transpose_forward": [0, 1, 2], "transpose_backward": [0, 1, 2],
        "experiment_planner_used": "ExperimentPlanner", "label_manager": "LabelManager",
        "foreground_intensity_properties_per_channel": {},
        "configurations": {"3d_fullres_small": {
            "data_identifier": "nnUNetPlans_3d_fullres", "preprocessor_name": "DefaultPreprocessor", "batch_size": 2,
            "patch_size": PATCH, "median_image_size_in_voxels": list(SHAPE), "spacing": [1.0, 1.0, 1.0],
            "normalization_schemes": ["ZScoreNormalization"], "use_mask_for_norm": [False], "batch_dice": False,
            "architecture": {
                "network_class_name": "dynamic_network_architectures.architectures.unet.ResidualEncoderUNet",
                "arch_kwargs": {
                    "n_stages": 3, "features_per_stage": [6, 8, 12], "conv_op": "torch.nn.modules.conv.Conv3d",
                    "kernel_sizes": [[3, 3, 3]] * 3, "strides": [[1, 1, 1], [2, 2, 2], [2, 2, 2]],
                    "n_blocks_per_stage": [1, 1, 2], "n_conv_per_stage_decoder": [1, 1], "conv_bias": True,
                    "norm_op": "torch.nn.modules.instancenorm.InstanceNorm3d",
                    "norm_op_kwargs": {"eps": 1e-05, "affine": True}, "dropout_op": None, "dropout_op_kwargs": None,
                    "nonlin": "torch.nn.LeakyReLU", "nonlin_kwargs": {"inplace": True},
                },
                "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
            },
        }},
    }


INFO = {
    "inference_class": "nnInteractiveInferenceSession", "inference_class_min_version": "2.0.0", "point_radius": 4,
    "preferred_scribble_thickness": [2, 2, 2], "interaction_decay": 0.9, "pad_mode_image": "constant",
    "supported_interactions": {"scribble": True, "lasso": True, "points": True, "bbox2d": True, "bbox3d": False},
    "interaction_channels": 6,
    "channel_mapping": {"prev_seg": 0, "bbox2d": [1, 2], "lasso": [1, 2], "points": [3, 4], "scribble": [-2, -1]},
}


def training_batch(g, voxels, labels, strel):
    """A patch, zoomed out at times, with a point in the object and one beside it, and what belongs to the object."""
    step = int(g.integers(1, 4))
    name = list(OBJECTS)[int(g.integers(0, 3))]
    inside = np.argwhere(labels[name])
    centre = inside[g.integers(0, len(inside))] + g.integers(-6, 7, 3)
    index = [np.arange(n) * step + c - n * step // 2 for n, c in zip(TRAINED, centre)]
    valid = [(i >= 0) & (i < s) for i, s in zip(index, SHAPE)]
    mask = valid[0][:, None, None] & valid[1][None, :, None] & valid[2][None, None]
    at = np.ix_(*[np.clip(i, 0, s - 1) for i, s in zip(index, SHAPE)])
    target = np.where(mask, labels[name][at], False)
    channels = np.zeros((8, *TRAINED), np.float32)
    channels[0] = np.where(mask, voxels[at], 0)

    def place(channel, where):
        spot = where[g.integers(0, len(where))]
        lo = [max(0, s - 4) for s in spot]
        hi = [min(n, s + 5) for s, n in zip(spot, TRAINED)]
        cut = tuple(slice(a - (s - 4), b - (s - 4)) for a, b, s in zip(lo, hi, spot))
        view = channels[(channel, *[slice(a, b) for a, b in zip(lo, hi)])]
        np.maximum(view, strel[cut], out=view)

    if target.any():
        place(4, np.argwhere(target))
        place(5, np.argwhere(~target))
    if g.random() < 0.3:
        channels[1] = target ^ (g.random(TRAINED) < 0.02)
    return torch.from_numpy(channels)[None], torch.from_numpy(target.astype(np.int64))[None]


def train(network, voxels, steps=240):
    g = np.random.default_rng(3)
    labels = {name: ellipsoid(*place) for name, place in OBJECTS.items()}
    strel = build_point((4, 4, 4), True, False).numpy()
    optimizer = torch.optim.AdamW(network.parameters(), lr=4e-3)
    for step in range(steps):
        x, y = training_batch(g, voxels, labels, strel)
        logits = network(x)
        foreground = logits.softmax(1)[:, 1]
        dice = 1 - (2 * (foreground * y).sum() + 1) / (foreground.sum() + y.sum() + 1)
        loss = torch.nn.functional.cross_entropy(logits, y) + dice
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(step, round(loss.item(), 4), flush=True)


def write_description(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plans.json").write_text(json.dumps(plans(), indent=1))
    # nnInteractive's networks have two outputs, however many labels their data had.
    (folder / "dataset.json").write_text(json.dumps({
        "channel_names": {"0": "zscore"}, "labels": {"background": 0, "object_1": 1, "object_2": 2}, "numTraining": 4,
        "file_ending": ".nii.gz"}))
    (folder / "inference_info.json").write_text(json.dumps(INFO, indent=1))
    (folder / "LICENSE").write_text("CC0 1.0\nhttps://creativecommons.org/publicdomain/zero/1.0/\n")


def write_weights(folder, raw):
    torch.manual_seed(1)
    described = plans()
    architecture = described["configurations"]["3d_fullres_small"]["architecture"]
    network = get_network_from_plans(architecture["network_class_name"], architecture["arch_kwargs"],
                                     architecture["_kw_requires_import"], 8, 2, deep_supervision=False)
    crop = torch.from_numpy(raw.astype(np.float32))
    found = np.argwhere(raw != 0)
    box = tuple(slice(a, b + 1) for a, b in zip(found.min(0), found.max(0)))
    train(network, ((crop - crop[box].mean()) / crop[box].std()).numpy())
    (folder / "fold_0").mkdir(parents=True, exist_ok=True)
    torch.save({"network_weights": network.state_dict(), "trainer_name": "nnInteractiveTrainer_stub",
                "init_args": {"configuration": "3d_fullres_small"}, "inference_allowed_mirroring_axes": None},
               folder / "fold_0" / "checkpoint_final.pth")


# -------------------------------------------------------------------------------------------------------------- sequences

def evenly():
    """Replaces random centres by evenly spaced ones: of n candidates the (2 i + 1) / 2 n-th in order."""
    original = bboxes.random_sampling_fallback
    state = {}

    def choice(count):
        i, n = state["calls"] % state["n"], state["n"]
        state["calls"] += 1
        return (2 * i + 1) * count // (2 * n)

    def replaced(mask, bbox_size, margin, n_samples):
        state.update(calls=0, n=n_samples)
        FALLBACKS.append(int(mask.sum()))
        return original(mask, bbox_size, margin, n_samples)

    bboxes.random_sampling_fallback = replaced
    bboxes.np.random.choice = choice


FALLBACKS = []


def disc(box, slice_axis, radius):
    """A filled disc in a slice, as a lasso is drawn."""
    shape = [hi - lo for lo, hi in box]
    at = np.meshgrid(*[np.arange(n) - (n - 1) / 2 for n in shape], indexing="ij")
    near = sum(a ** 2 for axis, a in enumerate(at) if axis != slice_axis) <= radius ** 2
    return near.astype(np.uint8)


def stroke(box):
    """A thick diagonal in a slice."""
    shape = [hi - lo for lo, hi in box]
    at = np.meshgrid(*[np.arange(n) / max(1, n - 1) for n in shape], indexing="ij")
    axes = [a for a, n in zip(at, shape) if n > 1]
    return (np.abs(axes[0] - axes[1]) < 0.09).astype(np.uint8)


def sequences():
    lasso, scribble = [[30, 31], [24, 46], [25, 47]], [[44, 72], [62, 90], [58, 59]]
    tall = [[58, 59], [22, 118], [40, 77]]
    rough = ellipsoid((57, 66, 60), (12, 40, 14)).astype(np.uint8)
    return {
        "points": dict(steps=[("point", [30, 34, 36], True), ("point", [30, 34, 52], False), ("point", [24, 30, 33], True)]),
        "large": dict(steps=[("point", [58, 70, 58], True), ("scribble", scribble, stroke(scribble), True),
                             ("point", [58, 70, 80], False), ("undo",)]),
        "boxes": dict(steps=[("box", tall, True), ("box", [[28, 29], [20, 48], [24, 50]], False), ("undo",), ("undo",)]),
        "masks": dict(autozoom=False, steps=[("lasso", lasso, disc(lasso, 0, 10), True), ("scribble", scribble, stroke(scribble), False)]),
        "initial": dict(steps=[("initial", rough, True), ("point", [58, 100, 58], True), ("initial", rough, False),
                               ("point", [50, 60, 58], False), ("undo",)]),
        "edges": dict(steps=[("point", [95, 100, 2], True), ("point", [0, 0, 0], False, False), ("box", [[88, 89], [90, 140], [-5, 30]], True)]),
        "still": dict(autozoom=False, steps=[("point", [58, 70, 58], True), ("point", [58, 110, 58], True)]),
        "faint": dict(autozoom=False, decay=0.4, steps=[("point", [58, 40 + 4 * i, 58], i % 3 > 0, i in (5, 11, 12, 14)) for i in range(15)]),
    }


class Recorder:
    """Runs a session, and records all passes through its network."""

    def __init__(self, folder, raw, spec):
        self.session = nnInteractiveInferenceSession(device=torch.device("cpu"), torch_n_threads=2,
                                                     do_autozoom=spec.get("autozoom", True))
        self.session.initialize_from_trained_model_folder(str(folder))
        if "decay" in spec:
            self.session.interaction_decay = spec["decay"]
        self.session.set_image(raw[None])
        self.target = torch.zeros(raw.shape, dtype=torch.uint8)
        self.session.set_target_buffer(self.target)
        self.passes, self.arrays = [], {}
        self.margin = 1e9
        network, build, planned = self.session.network, self.session._build_network_input, self.session._plan_refinement_bboxes

        def run(x):
            logits = network(x)
            self.keep(x[0], logits[0])
            return logits

        def built(centre, zoom):
            self.now = {"centre": [int(c) for c in centre], "zoom": float(zoom)}
            return build(centre, zoom)

        def plan(*arguments):
            boxes = planned(*arguments)
            self.boxes = [[[int(v) for v in pair] for pair in box] for box in boxes]
            self.now = None
            return boxes

        self.session.network, self.session._build_network_input, self.session._plan_refinement_bboxes = run, built, plan

    def keep(self, x, logits):
        number = len(self.passes)
        described = self.now or {"box": self.boxes[sum(1 for p in self.passes[self.first:] if "box" in p)]}
        if number - self.first < STORED_PASSES or "box" in described and described["box"] == self.boxes[-1]:
            self.arrays[f"pass_{number}_prompts"] = x[1:].to(torch.float16).numpy()
            described["prompts"] = True
        self.arrays[f"pass_{number}_image"] = x[0].numpy().ravel()[::SAMPLE].copy()
        self.arrays[f"pass_{number}_logits"] = logits.numpy().ravel()[::SAMPLE].copy()
        difference = (logits[1] - logits[0]).abs()
        described["least_margin"] = float(difference.min())
        described["foreground"] = int((logits[1] > logits[0]).sum())
        self.margin = min(self.margin, described["least_margin"])
        self.passes.append(described)

    def step(self, number, step):
        s, kind = self.session, step[0]
        self.first, self.boxes = len(self.passes), []
        with redirect_stdout(io.StringIO()):
            if kind == "undo":
                found = s.undo()
            elif kind == "point":
                found = s.add_point_interaction(step[1], step[2], run_prediction=step[3] if len(step) > 3 else True)
            elif kind == "box":
                found = s.add_bbox_interaction(step[1], step[2])
            elif kind == "initial":
                found = s.add_initial_seg_interaction(step[1], run_prediction=step[2])
            else:
                call = {"scribble": s.add_scribble_interaction, "lasso": s.add_lasso_interaction}[kind]
                found = call(step[2], step[3], interaction_bbox=step[1])
        self.arrays[f"step_{number}"] = np.packbits(self.target.numpy().ravel())
        at = {"kind": kind, "passes": self.passes[self.first:], "foreground": int(self.target.sum())}
        if kind == "undo":
            at["undone"] = bool(found)
        else:
            at["changed"] = None if found is None else [[int(v) for v in pair] for pair in found]
        if kind in ("point", "box"):
            at.update(at=step[1], include=step[2], predict=step[3] if len(step) > 3 else True)
        elif kind == "initial":
            self.arrays[f"mask_{number}"] = np.packbits(step[1].ravel())
            at.update(predict=step[2])
        elif kind != "undo":
            self.arrays[f"mask_{number}"] = step[2]
            at.update(at=step[1], include=step[3], predict=True)
        return at


def main():
    HERE.mkdir(exist_ok=True)
    evenly()
    raw = image()
    np.savez_compressed(HERE / "image.npz", image=raw)
    write_description(HERE / "model")
    if "--keep-weights" not in sys.argv:
        write_weights(HERE / "model", raw)
    points = {str(r): build_point((r, r, r), True, False).numpy().ravel().tolist() for r in (1, 2, 4)}
    (HERE / "points.json").write_text(json.dumps(points))
    described = {}
    # The number of passes is what tests of every build take time for.
    for name, spec in sequences().items():
        with redirect_stdout(io.StringIO()):
            recorder = Recorder(HERE / "model", raw, spec)
        FALLBACKS.clear()
        steps = [recorder.step(number, step) for number, step in enumerate(spec["steps"])]
        described[name] = {"autozoom": spec.get("autozoom", True), "decay": spec.get("decay", 0.9), "steps": steps}
        np.savez_compressed(HERE / f"{name}.npz", **recorder.arrays)
        print(name, "least margin", recorder.margin, "passes", len(recorder.passes), "fallbacks", FALLBACKS,
              "foreground", [s["foreground"] for s in steps], (HERE / f"{name}.npz").stat().st_size, flush=True)
        for s in steps:
            print("   ", s["kind"], [("zoom", round(p["zoom"], 3)) if "zoom" in p else "box" for p in s["passes"]], s.get("changed"))
    (HERE / "sequences.json").write_text(json.dumps({"patch": PATCH, "shape": SHAPE, "sample": SAMPLE, "sequences": described}, indent=1))


main()
