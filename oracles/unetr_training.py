"""Reference losses, gradients, logits and state dicts of UNETR, from MONAI.

    python oracles/unetr_training.py              writes oracles/data/unetr_*.json (committed)
    python oracles/unetr_training.py load FILE    loads weights that plimsoll wrote into the network that FILE.json describes, strictly

Needs torch, monai >= 1.6.1 and safetensors. Batches and weights are given by formulas that the tests share. Of gradients, norms and
products with numbers of the same formula are stored.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from monai.networks.nets import UNETR
from safetensors.torch import load_file

from residual_training import Flat, fill
from swin_training import told
from unet_training import adamw, noise, reference

torch.set_num_threads(1)
DATA = Path(__file__).parent / "data"
# Small weights: a block adds to its input, so that larger ones make activations grow from block to block.
GAIN = 1.0
POSITIONS = "vit.patch_embedding.position_embeddings"


def unetr(c):
    d = c["dimensions"]
    return UNETR(
        c["in_channels"], c["classes"], c["image_size"][3 - d:], c["feature_size"], c["hidden_size"],
        round(c["hidden_size"] * c["mlp_ratio"]), c["num_heads"][0], dropout_rate=c["dropout"], spatial_dims=d, qkv_bias=c["qkv_bias"],
    )


def fill_all(net):
    """Weights by the formula of crates/plimsoll-nn/tests/training/mod.rs, in which positions are a table."""
    fill(net, GAIN)
    p = net.get_parameter(POSITIONS)
    seed = sum((i + 1) * b for i, b in enumerate(POSITIONS.encode()))
    with torch.no_grad():
        p.copy_(torch.tensor(0.5 * noise(seed, p.numel()).reshape(p.shape), dtype=torch.float32))


def run(name, c, n, settings):
    net = unetr(c)
    fill_all(net)
    net.train()
    state = {key: list(value.shape) for key, value in net.state_dict().items()}
    parameters = sum(p.numel() for p in net.parameters())
    if c["dimensions"] == 2:
        net = Flat(net)
    patch = c["image_size"]
    record, gradients = reference(name, net, c, patch, n, 20, settings, {}, with_bf16=False)
    record |= {"gradients": {k: told(g) for k, g in gradients.items()}, "state": state, "parameters": parameters, "gain": GAIN, "projections": logits(c, patch)}
    (DATA / f"unetr_{name}.json").write_text(json.dumps(record) + "\n")


def logits(c, patch):
    """Products of the logits of an image with noise, in f64."""
    net = unetr(c)
    fill_all(net)
    net = net.double().eval()
    image = torch.tensor(noise(1, c["in_channels"] * int(np.prod(patch))).reshape(1, c["in_channels"], *patch))
    with torch.no_grad():
        found = (Flat(net)(image)[0] if c["dimensions"] == 2 else net(image)).numpy().ravel()
    return [float(found @ noise(seed, found.size)) for seed in (7, 8, 9)]


def config(image_size, **more):
    return dict(
        name="unetr", in_channels=1, classes=2, dimensions=3, image_size=image_size, feature_size=4, hidden_size=24, mlp_ratio=2.0,
        num_heads=[3], qkv_bias=False, dropout=0.0,
    ) | more


def sizes():
    """Parameters of MONAI's defaults, and those that nothing depends on."""
    records = []
    for image_size in ([96, 96, 96], [128, 128, 64]):
        net = UNETR(in_channels=1, out_channels=2, img_size=image_size)
        all = {name: p.numel() for name, p in net.named_parameters()}
        unused = sum(count for name, count in all.items() if "norm_cross_attn" in name)
        records.append(dict(image_size=image_size, parameters=sum(all.values()), unused=unused))
    (DATA / "unetr_sizes.json").write_text(json.dumps(records) + "\n")


def load(path):
    """Loads a checkpoint of ours into the network that `path`.json describes: no tensor may be missing or left over."""
    net = unetr(json.loads(Path(f"{path}.json").read_text()))
    # Moments and averages of our checkpoints stand behind a slash.
    state = {name: tensor for name, tensor in load_file(path).items() if "/" not in name}
    net.load_state_dict(state, strict=True)
    print(f"unetr: {len(state)} tensors loaded")


def main():
    # A learning rate at which PyTorch in f32 agrees with itself in f64 over twenty steps.
    slow = dict(adamw, lr=1e-4)
    run("volume", config([16, 32, 16], classes=3, in_channels=2), 2, slow)
    run("biased", config([16, 16, 48], qkv_bias=True, mlp_ratio=1.5, num_heads=[4]), 2, slow)
    run("flat", config([1, 32, 64], dimensions=2, feature_size=6), 2, slow)
    sizes()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["load", file]:
            load(file)
        case _:
            main()
