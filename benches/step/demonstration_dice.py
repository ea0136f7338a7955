"""Dice of the demonstration's training: in PyTorch, in f32 and in bf16 by autocast, and here, in f32, bf16 and bf16-dot.

    plimsoll demo --out DIR
    python benches/step/demonstration_dice.py DIR [--seeds 1,2,3] [--precisions f32 autocast] [--binary plimsoll]

Needs torch, monai, nnunetv2 and nibabel in the Python that runs this. Prints, for each precision and seed, the mean Dice of the foreground over
the two volumes that the demonstration predicts (`imagesTs`) and over the two that its fold validates with, on the grid of their labels. With
`--binary`, `plimsoll train` trains with the same settings and seeds, of which 1 is the demonstration's own.

The same in both, from the run's `specification.json`: cases, network, the distribution of its initial weights, loss and the weights of its
heads, AdamW, the learning rate of each step, the bound of the gradients' norm, steps, batch, patch, spacing, z-score, and the share of patches
on the foreground. Patches are interpolated once, linearly, through a map of spacing, rotation and scale. Augmentation is nnU-Net's: rotation
and scale are drawn here from its ranges, and the rest are its own transforms. Windows stand where nnU-Net's stand, overlap by half, and
have Gaussian weights; logits are brought to the stored grid linearly. Random streams differ, so that a seed means something else in each.
Under autocast forward passes are in bf16, those of predictions too; parameters and the loss are in f32. Ours predict with features
stored as they were trained, and multiply in f32.
"""

import argparse
import itertools
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import nibabel
import numpy
import torch
from monai.losses import DiceCELoss
from monai.networks.nets import DynUNet
from nnunetv2.inference.sliding_window_prediction import compute_gaussian, compute_steps_for_sliding_window
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from torch.nn.functional import grid_sample, interpolate

OURS = ["f32", "bf16", "bf16-dot"]

parser = argparse.ArgumentParser()
numbers = lambda text: [int(number) for number in text.split(",")]
parser.add_argument("demonstration", type=Path, help="the folder that `plimsoll demo --out` made")
parser.add_argument("--seeds", type=numbers, default=[1, 2, 3])
parser.add_argument("--precisions", nargs="*", choices=["f32", "autocast"], default=["f32", "autocast"], help="PyTorch's")
parser.add_argument("--binary", type=Path, help="train with this one of ours, too")
parser.add_argument("--ours", nargs="*", choices=OURS, default=OURS, help="precisions of ours")
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()

torch.set_num_threads(args.threads)
DATA = args.demonstration / "dataset"
SPECIFICATION = json.loads((args.demonstration / "run/fold_0/specification.json").read_text())
CONFIG = SPECIFICATION["config"]
TRAINING, SAMPLING = CONFIG["training"], CONFIG["task"]["segmentation"]
NET, PATCH = TRAINING["net"], TRAINING["patch"]
AUGMENTATION, SPACING = SAMPLING["augmentation"], torch.tensor(SAMPLING["spacing"], dtype=torch.float64)
TEST = sorted(path.name.removesuffix(".nii.gz") for path in (DATA / "labelsTs").glob("*.nii.gz"))
HELD_OUT = {"test": [(case, "Ts") for case in TEST], "validation": [(case, "Tr") for case in SPECIFICATION["cases"]["val"]]}
# The coarsest head has no part in the loss.
HEAD_WEIGHTS = [0.5**head for head in range(NET["deep_supervision"])]


class Case:
    """A case as stored, its axes in the order of the network's, with its intensities normalised."""

    def __init__(self, name, part):
        image = nibabel.as_closest_canonical(nibabel.load(DATA / f"images{part}" / f"{name}_0000.nii.gz"))
        label = nibabel.as_closest_canonical(nibabel.load(DATA / f"labels{part}" / f"{name}.nii.gz"))
        values = image.get_fdata().T
        assert (values != 0).all(), "statistics are over all voxels"
        self.image = torch.from_numpy(((values - values.mean()) / values.std()).astype(numpy.float32))
        self.label = torch.from_numpy(numpy.ascontiguousarray(label.get_fdata().T.astype(numpy.float32)))
        stored = torch.tensor(self.image.shape, dtype=torch.float64)
        spacing = torch.tensor(nibabel.affines.voxel_sizes(image.affine)[::-1].copy())
        self.shape = torch.round(stored * spacing / SPACING).int().tolist()
        self.stored_voxels = stored / torch.tensor(self.shape)  # Along each axis, in a voxel of the network's grid.
        self.foreground = self.label.nonzero()

    def pull(self, points):
        """Image and label at points of the network's grid; 0 outside of the stored image."""
        stored = torch.tensor(self.image.shape)
        points = (points + 0.5) * self.stored_voxels - 0.5
        is_inside = ((points >= -0.5) & (points <= stored - 0.5)).all(-1)
        places = (2 * points / (stored - 1) - 1).flip(-1).float()[None].expand(2, -1, -1, -1, -1)
        pulled = grid_sample(torch.stack([self.image, self.label])[:, None], places, padding_mode="border", align_corners=True)
        image, label = pulled[:, 0] * is_inside
        return image, label > 0.5

    def whole(self):
        return self.pull(indices(self.shape))[0]


def indices(shape):
    return torch.stack(torch.meshgrid(*[torch.arange(extent, dtype=torch.float64) for extent in shape], indexing="ij"), -1)


def rotation(radians):
    """The rotations about all axes, one after the other."""
    matrix = torch.eye(3, dtype=torch.float64)
    for axis, angle in enumerate(radians):
        one, other = (axis + 1) % 3, (axis + 2) % 3
        about = torch.eye(3, dtype=torch.float64)
        about[one, one] = about[other, other] = math.cos(angle)
        about[one, other], about[other, one] = -math.sin(angle), math.sin(angle)
        matrix = matrix @ about
    return matrix


class Patches:
    """Training patches, augmented."""

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)
        numpy.random.seed(seed)  # nnU-Net's transforms draw from it, and from PyTorch's, which is seeded with the weights.
        self.cases = [Case(name, "Tr") for name in SPECIFICATION["cases"]["train"]]
        angles = tuple(numpy.radians(AUGMENTATION["rotation"]))
        transforms = nnUNetTrainer.get_training_transforms(PATCH, angles, None, (0, 1, 2), False, [False]).transforms
        self.transforms = transforms[1:]  # The first is the spatial one.

    def start(self, case):
        patch, shape = torch.tensor(PATCH), torch.tensor(case.shape)
        room = shape - patch
        first = torch.where(room < 0, -(-room // 2), 0)
        if self.random.random() < SAMPLING["oversample_foreground"]:
            voxel = case.foreground[self.random.integers(len(case.foreground))]
            centre = torch.round((voxel + 0.5) / case.stored_voxels - 0.5).long()
            return torch.maximum(centre - patch // 2, first)
        return first + torch.tensor([self.random.integers(max(extent, 0) + 1) for extent in room.tolist()])

    def sample(self):
        case = self.cases[self.random.integers(len(self.cases))]
        start, linear = self.start(case), torch.eye(3, dtype=torch.float64)
        if self.random.random() < AUGMENTATION["p_rotation"]:
            turned = rotation(numpy.radians(self.random.uniform(*AUGMENTATION["rotation"], 3)))
            linear = turned * SPACING / SPACING[:, None]
        if self.random.random() < AUGMENTATION["p_scaling"]:
            linear = linear * self.random.uniform(*AUGMENTATION["scaling"])
        centre = (torch.tensor(PATCH, dtype=torch.float64) - 1) / 2
        image, label = case.pull((indices(PATCH) - centre) @ linear.T + centre + start)
        pair = {"image": image[None], "segmentation": label[None].to(torch.int16)}
        for transform in self.transforms:
            pair = transform(**pair)
        return pair["image"], pair["segmentation"].long()

    def batch(self):
        images, labels = zip(*[self.sample() for _ in range(TRAINING["batch"])])
        return torch.stack(images), torch.stack(labels)


def network():
    return DynUNet(
        3, NET["in_channels"], NET["classes"], NET["kernels"], NET["strides"], NET["strides"][1:], filters=NET["features"],
        norm_name=("INSTANCE", {"affine": NET["affine"], "eps": NET["epsilon"]}), act_name=("leakyrelu", {"negative_slope": NET["slope"]}),
        deep_supervision=True, deep_supr_num=NET["deep_supervision"],
    )


def trained(precision, seed):
    torch.manual_seed(seed)
    net, patches = network(), Patches(seed)
    dice, entropy = TRAINING["loss"]["components"]
    assert (dice["name"], entropy["name"], dice["weight"], entropy["weight"]) == ("soft_dice", "cross_entropy", 1.0, 1.0)
    loss_of = DiceCELoss(
        include_background=dice["include_background"], to_onehot_y=True, softmax=True,
        batch=dice["batch"], smooth_nr=dice["smooth_numerator"], smooth_dr=dice["smooth_denominator"],
    )
    adamw, schedule = TRAINING["optimizer"], CONFIG["schedule"]
    betas = (adamw["beta1"], adamw["beta2"])
    optimizer = torch.optim.AdamW(net.parameters(), betas=betas, eps=adamw["epsilon"], weight_decay=adamw["weight_decay"])
    steps = schedule["total_steps"]
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = schedule["learning_rate"] * (1 - step / steps) ** schedule["decay"]["power"]
        image, label = patches.batch()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
            heads = [net(image)[:, 0], *net.heads]
        loss = 0.0
        for weight, logits in zip(HEAD_WEIGHTS, heads):
            target = interpolate(label.float(), logits.shape[2:], mode="nearest-exact").long()
            loss = loss + weight / sum(HEAD_WEIGHTS) * loss_of(logits.float(), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), TRAINING["max_grad_norm"])
        optimizer.step()
    return net.eval()


def dice_of(predicted, label):
    """The mean over classes of 2 |P ∩ L| / (|P| + |L|)."""
    of_class = lambda c: 2 * ((predicted == c) & (label == c)).sum() / ((predicted == c).sum() + (label == c).sum())
    return statistics.mean(float(of_class(c)) for c in range(1, NET["classes"]))


def logits_of(net, image):
    """The mean of windows that overlap by half, with Gaussian weights."""
    gaussian = compute_gaussian(tuple(PATCH), sigma_scale=1 / 8, dtype=torch.float32, device=torch.device("cpu"))
    sums, weights = torch.zeros(NET["classes"], *image.shape), torch.zeros(image.shape)
    for start in itertools.product(*compute_steps_for_sliding_window(image.shape, PATCH, 0.5)):
        window = tuple(slice(first, first + extent) for first, extent in zip(start, PATCH))
        sums[:, *window] += net(image[window][None, None])[0].float() * gaussian
        weights[window] += gaussian
    return sums / weights


def pytorch(precision, seed):
    net, scores = trained(precision, seed), {}
    for part, names in HELD_OUT.items():
        of_cases = []
        for name in names:
            case = Case(*name)
            with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
                logits = logits_of(net, case.whole())
            logits = interpolate(logits[None], case.label.shape, mode="trilinear", align_corners=False)
            of_cases.append(dice_of(logits[0].argmax(0), case.label))
        scores[part] = statistics.mean(of_cases)
    return scores


def ours(precision, seed):
    settings = SPECIFICATION["settings"]
    joined = lambda values: ",".join(map(str, values))
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        config = folder / "plimsoll.toml"
        config.write_text(f'oversampling = "{settings["oversampling"]}"\n')
        train = [args.binary, "train", DATA, "--out", folder / "run", "--config", config, "--threads", str(args.threads), "--ram", "1GiB"]
        train += ["--net", settings["network"]["net"], "--features", joined(settings["network"]["features"])]
        train += ["--patch-size", joined(settings["patch_size"]), "--batch-size", str(settings["batch_size"])]
        train += ["--epochs", str(settings["epochs"]), "--iterations", str(settings["iterations_per_epoch"])]
        train += ["--validation-iterations", str(settings["validation_iterations"]), "--optimizer", settings["optimizer"]["name"]]
        train += ["--learning-rate", str(settings["learning_rate"]), "--precision", precision, "--seed", str(seed)]
        predict = [args.binary, "predict", folder / "run", "-i", DATA / "imagesTs", "-o", folder / "predictions", "--threads", str(args.threads)]
        for command in [train, predict]:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{done.stderr}{command[1]} ended with {done.returncode}")
        scores = {}
        for part, names in HELD_OUT.items():
            predictions = {"test": folder / "predictions", "validation": folder / "run/fold_0/validation"}[part]
            label_map = lambda path: numpy.asarray(nibabel.load(path).dataobj)
            pairs = [(label_map(predictions / f"{name}.nii.gz"), label_map(DATA / f"labels{of}" / f"{name}.nii.gz")) for name, of in names]
            scores[part] = statistics.mean(dice_of(*pair) for pair in pairs)
    return scores


def report(who, precision, run):
    all_scores = []
    for seed in args.seeds:
        scores = run(precision, seed)
        all_scores.append(scores)
        listed = ", ".join(f"{part} {dice:.4f}" for part, dice in scores.items())
        print(f"{who} {precision}, seed {seed}: Dice {listed}", flush=True)
    if len(all_scores) > 1:
        mean = ", ".join(f"{part} {statistics.mean(scores[part] for scores in all_scores):.4f}" for part in HELD_OUT)
        print(f"{who} {precision}, mean of {len(all_scores)} seeds: Dice {mean}", flush=True)


if args.binary:
    for precision in args.ours:
        report("Plimsoll", precision, ours)
for precision in args.precisions:
    report("PyTorch", precision, pytorch)
