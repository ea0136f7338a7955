"""Reference losses, gradients, logits and state dicts of STU-Net, from its authors' trainers for nnU-Net.

    git clone https://github.com/uni-medical/STU-Net
    python oracles/stunet_training.py STU-Net               writes oracles/data/stunet_*.{json,safetensors} (committed)
    python oracles/stunet_training.py STU-Net load FILE     loads weights that plimsoll wrote into the network that FILE.json describes,
                                                            strictly

Commit 0652eaf of the repository. Needs torch, monai and safetensors. The trainers' base class is replaced: only the network is used. Batches
and weights are given by formulas that the tests share. Of large gradients a part is stored.
"""

import json
import sys
import types
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from residual_training import MOST, fill
from unet_training import adamw, cube, noise, reference

torch.set_num_threads(1)
DATA = Path(__file__).parent / "data"
BASE = "nnunetv2.training.nnUNetTrainer.nnUNetTrainer"


def trainers(checkout):
    """The module of the trainers, without nnU-Net."""
    for depth in range(1, 5):
        name = ".".join(BASE.split(".")[:depth])
        sys.modules[name] = types.ModuleType(name)
    sys.modules[BASE].nnUNetTrainer = object
    path = Path(checkout) / "nnUNet-2.2/nnunetv2/training/nnUNetTrainer/STUNetTrainer.py"
    spec = spec_from_file_location("stunet_trainer", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stunet(source, c):
    """The network of a configuration. The authors' lists of strides begin with the stride into the second stage."""
    return source.STUNet(
        c["in_channels"], c["classes"], c["encoder_blocks"], c["features"], c["strides"][1:], c["kernels"],
        enable_deep_supervision=c["deep_supervision"] > 0,
    )


def part(gradient):
    return gradient.float().flatten()[:: -(-gradient.numel() // MOST)].contiguous()


def run(source, name, c, patch, n, settings):
    net = stunet(source, c)
    fill(net)
    net.train()
    state = {key: list(value.shape) for key, value in net.state_dict().items()}
    record, gradients = reference(name, net, c, patch, n, 20, settings, {}, with_bf16=False)
    save_file({k: part(g) for k, g in gradients.items()}, DATA / f"stunet_{name}_gradients.safetensors")
    record |= {"state": state, "projections": logits(source, c, patch)}
    (DATA / f"stunet_{name}.json").write_text(json.dumps(record) + "\n")


def logits(source, c, patch):
    """Products of the logits of an image with noise, in f64."""
    net = stunet(source, c | {"deep_supervision": 0}).double()
    fill(net)
    net.eval()
    image = torch.tensor(noise(1, c["in_channels"] * int(np.prod(patch))).reshape(1, c["in_channels"], *patch))
    with torch.no_grad():
        found = net(image).numpy().ravel()
    return [float(found @ noise(seed, found.size)) for seed in (7, 8, 9)]


def config(features, strides, **more):
    stages = len(features)
    return dict(
        name="stunet", in_channels=1, classes=2, features=features, kernels=[cube(3)] * stages, strides=strides,
        encoder_blocks=[1] * stages, deep_supervision=stages - 2,
    ) | more


class Plans:
    """What the trainers ask of a plan: its strides, and the number of outputs."""

    pool_op_kernel_sizes = [[1, 1, 1]] + [[2, 2, 2]] * 5
    num_segmentation_heads = 2

    def get_label_manager(self, _):
        return self


def sizes(source):
    """Parameters of the authors' sizes, and those that a normalisation cancels."""
    records = []
    for size, trainer in [("s", "small"), ("b", "base"), ("l", "large")]:
        plans = Plans()
        net = getattr(source, f"STUNetTrainer_{trainer}").build_network_architecture(plans, None, plans, 1)
        all = {name: p.numel() for name, p in net.named_parameters()}
        cancelled = sum(count for name, count in all.items() if name.endswith(("conv1.bias", "conv2.bias")))
        records.append(dict(size=size, parameters=sum(all.values()), cancelled=cancelled))
    (DATA / "stunet_sizes.json").write_text(json.dumps(records) + "\n")


def load(source, path):
    """Loads a checkpoint of ours into the network that `path`.json describes: no tensor may be missing or left over."""
    net = stunet(source, json.loads(Path(f"{path}.json").read_text()))
    # Moments and averages of our checkpoints stand behind a slash.
    state = {name: tensor for name, tensor in load_file(path).items() if "/" not in name}
    net.load_state_dict(state, strict=True)
    print(f"stunet: {len(state)} tensors loaded")


def main(source):
    # A learning rate at which PyTorch in f32 agrees with itself in f64 over twenty steps.
    slow = dict(adamw, lr=1e-4)
    halved = [cube(1), cube(2), cube(2), cube(2)]
    run(source, "supervised", config([8, 8, 12, 12], halved, classes=3), [16, 16, 16], 1, slow)
    blocks = dict(encoder_blocks=[2, 1, 2], deep_supervision=0, in_channels=2)
    run(source, "anisotropic", config([6, 10, 12], [cube(1), [1, 2, 2], cube(1)], **blocks), [6, 12, 8], 2, slow)
    flat = [[1, 3, 3]] * 3
    run(source, "flat", config([8, 12, 16], [cube(1)] + [[1, 2, 2]] * 2, kernels=flat), [1, 24, 32], 2, slow)
    sizes(source)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [checkout, "load", file]:
            load(trainers(checkout), file)
        case [checkout]:
            main(trainers(checkout))
        case _:
            sys.exit(__doc__)
