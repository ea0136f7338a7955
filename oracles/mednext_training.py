"""Reference losses, gradients and state dicts of MedNeXt, from MONAI.

    python oracles/mednext_training.py              writes oracles/data/mednext_*.{json,safetensors} (committed)
    python oracles/mednext_training.py load FILE    loads weights that plimsoll wrote into the network that FILE.json describes, strictly
    python oracles/mednext_training.py upkern       writes oracles/data/upkern.json, kernels of 3 resampled to 5

Needs torch, monai >= 1.6.1 and safetensors. Batches and weights are given by formulas that the tests share. Of large gradients a part is
stored. Heads are transposed convolutions in MONAI; their weights and gradients are stored with the axes of convolutions.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from monai.networks.nets import MedNeXt
from monai.networks.nets.mednext import create_mednext
from safetensors.torch import load_file, save_file

from residual_training import MOST, Flat
from unet_training import adamw, noise, reference

torch.set_num_threads(1)
DATA = Path(__file__).parent / "data"
# Small weights: a block adds to its input, so that larger ones make activations grow from block to block.
GAIN = 1.0


def mednext(c):
    """The network of a configuration. Lists of MONAI's decoder begin with the coarsest stage, and the bottleneck has arguments of its own."""
    *down, bottleneck = c["encoder_blocks"]
    *expansion, bottleneck_expansion = c["encoder_expansion"]
    return MedNeXt(
        c["dimensions"], c["init_filters"], c["in_channels"], c["classes"], expansion, c["decoder_expansion"][::-1],
        bottleneck_expansion, c["kernel_size"], c["deep_supervision"] > 0, True, down, bottleneck,
        c["decoder_blocks"][::-1], global_resp_norm=c["grn"],
    )


def is_head(name):
    return name.endswith("conv_out.weight")


def fill(net):
    """Weights by the formula of crates/plimsoll-nn/tests/training/mod.rs, heads in the order of convolutions."""
    for name, p in net.named_parameters():
        x = noise(sum((i + 1) * b for i, b in enumerate(name.encode())), p.numel())
        shape = p.transpose(0, 1).shape if is_head(name) else p.shape
        if p.ndim > 1 and "global_resp" not in name:
            x = x * np.sqrt(GAIN / (p.numel() // shape[0]))
        else:
            x = 1.0 + 0.2 * x if name.endswith(".weight") else 0.1 * x
        x = torch.tensor(x.reshape(shape), dtype=torch.float32)
        with torch.no_grad():
            p.copy_(x.transpose(0, 1) if is_head(name) else x)


def part(name, gradient):
    gradient = gradient.transpose(0, 1) if is_head(name) else gradient
    return gradient.float().flatten()[:: -(-gradient.numel() // MOST)].contiguous()


def run(name, c, patch, n, settings):
    net = mednext(c)
    fill(net)
    net.train()
    state = {key: list(value.shape) for key, value in net.state_dict().items()}
    if c["dimensions"] == 2:
        net = Flat(net)
    record, gradients = reference(name, net, c, patch, n, 20, settings, {}, with_bf16=False)
    save_file({k: part(k, g) for k, g in gradients.items()}, DATA / f"mednext_{name}_gradients.safetensors")
    record |= {"state": state, "gain": GAIN}
    (DATA / f"mednext_{name}.json").write_text(json.dumps(record) + "\n")


def config(**more):
    return dict(
        name="mednext", in_channels=1, classes=2, dimensions=3, init_filters=8, kernel_size=3, encoder_blocks=[1, 2, 1],
        decoder_blocks=[1, 1], encoder_expansion=[2, 3, 4], decoder_expansion=[2, 3], grn=False, deep_supervision=0,
    ) | more


def sizes():
    """Parameters of the sizes of the paper, without the biases that normalisation cancels and with them."""
    records = []
    for size in "SBML":
        for kernel in (3, 5):
            net = create_mednext(size, in_channels=1, out_channels=2, kernel_size=kernel)
            all = {name: p.numel() for name, p in net.named_parameters()}
            cancelled = sum(count for name, count in all.items() if name.endswith("conv1.bias"))
            records.append(dict(size=size.lower(), kernel_size=kernel, parameters=sum(all.values()), cancelled=cancelled))
    (DATA / "mednext_sizes.json").write_text(json.dumps(records) + "\n")


def upkern():
    """Kernels of a depthwise convolution and of a transposed one of 3 voxels, resampled to 5 as the authors of MedNeXt do."""
    cases = []
    for shape, size in [((4, 1, 3, 3, 3), (5, 5, 5)), ((3, 1, 3, 3, 3), (7, 7, 7)), ((4, 1, 3, 3), (5, 5))]:
        kernel = torch.tensor(noise(len(cases) + 1, int(np.prod(shape))).reshape(shape))
        mode = "trilinear" if len(size) == 3 else "bilinear"
        resampled = torch.nn.functional.interpolate(kernel, size=size, mode=mode)
        numbers = {"kernel": kernel, "resampled": resampled}
        cases.append(dict(shape=shape, size=size) | {k: [round(v, 9) for v in n.flatten().tolist()] for k, n in numbers.items()})
    (DATA / "upkern.json").write_text(json.dumps(cases) + "\n")


def load(path):
    """Loads a checkpoint of ours into the network that `path`.json describes: no tensor may be missing or left over."""
    c = json.loads(Path(f"{path}.json").read_text())
    net = mednext(c)
    # Moments and averages of our checkpoints stand behind a slash.
    state = {name: tensor for name, tensor in load_file(path).items() if "/" not in name}
    net.load_state_dict(state, strict=True)
    print(f"mednext: {len(state)} tensors loaded")


def main():
    slow = dict(adamw, lr=1e-3)
    run("supervised", config(grn=True, deep_supervision=2, classes=3), [8, 16, 12], 2, slow)
    run("large_kernels", config(kernel_size=5, in_channels=2), [16, 12, 8], 1, slow)
    run("flat", config(dimensions=2, grn=True), [1, 24, 32], 2, slow)
    sizes()
    upkern()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["load", file]:
            load(file)
        case ["upkern"]:
            upkern()
        case _:
            main()
