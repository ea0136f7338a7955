"""Reference losses, gradients and state dicts of AttentionUnet, from MONAI.

    python oracles/attention_training.py              writes oracles/data/attention_*.{json,safetensors} (committed)
    python oracles/attention_training.py load FILE    loads weights that plimsoll wrote into the network that FILE.json describes, strictly

Needs torch, monai >= 1.6.1 and safetensors. Batches and weights are given by formulas that the tests share. Of large gradients a part is
stored.
"""

import json
import sys
from pathlib import Path

import torch
from monai.networks.nets import AttentionUnet
from safetensors.torch import load_file, save_file

from residual_training import MOST, Flat, fill
from unet_training import adamw, reference

torch.set_num_threads(1)
DATA = Path(__file__).parent / "data"


def attention_unet(c):
    """The network of a configuration. MONAI's strides begin with the stride into the second stage."""
    d = c["dimensions"]
    strides = [stride[3 - d:] for stride in c["strides"][1:]]
    return AttentionUnet(d, c["in_channels"], c["classes"], c["features"], strides, c["kernel_size"], dropout=c["dropout"])


def part(gradient):
    return gradient.float().flatten()[:: -(-gradient.numel() // MOST)].contiguous()


def run(name, c, patch, n, settings):
    net = attention_unet(c)
    fill(net)
    net.train()
    state = {key: list(value.shape) for key, value in net.state_dict().items()}
    parameters = sum(p.numel() for p in net.parameters())
    if c["dimensions"] == 2:
        net = Flat(net)
    record, gradients = reference(name, net, c, patch, n, 20, settings, {}, with_bf16=False)
    save_file({k: part(g) for k, g in gradients.items()}, DATA / f"attention_{name}_gradients.safetensors")
    record |= {"state": state, "parameters": parameters}
    (DATA / f"attention_{name}.json").write_text(json.dumps(record) + "\n")


def config(features, strides, **more):
    return dict(
        name="attentionunet", in_channels=1, classes=2, dimensions=3, features=features, strides=strides, kernel_size=3, dropout=0.0,
    ) | more


def sizes():
    """Parameters of the network of plimsoll's usual features, and those that an instance normalisation cancels."""
    net = AttentionUnet(3, 1, 2, [16, 32, 64, 128, 256], [2, 2, 2, 2])
    all = {name: p.numel() for name, p in net.named_parameters()}
    cancelled = sum(count for name, count in all.items() if name.endswith("merge.conv.bias"))
    record = dict(parameters=sum(all.values()), cancelled=cancelled)
    (DATA / "attention_sizes.json").write_text(json.dumps(record) + "\n")


def load(path):
    """Loads a checkpoint of ours into the network that `path`.json describes: no tensor may be missing or left over."""
    c = json.loads(Path(f"{path}.json").read_text())
    net = attention_unet(c)
    # Moments and averages of our checkpoints stand behind a slash.
    state = {name: tensor for name, tensor in load_file(path).items() if "/" not in name}
    net.load_state_dict(state, strict=True)
    print(f"attentionunet: {len(state)} tensors loaded")


def main():
    usual = dict(adamw, lr=1e-3)
    cube = [[1, 1, 1], [2, 2, 2], [2, 2, 2]]
    run("three_stages", config([8, 12, 20], cube, classes=3), [8, 16, 12], 2, usual)
    run("anisotropic", config([6, 10], [[1, 1, 1], [1, 2, 3]], in_channels=2, kernel_size=5), [6, 12, 12], 2, usual)
    flat = [[1, 1, 1], [1, 2, 2], [1, 2, 2], [1, 2, 2]]
    run("flat", config([8, 8, 16, 16], flat, dimensions=2), [1, 24, 32], 2, usual)
    sizes()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["load", file]:
            load(file)
        case _:
            main()
