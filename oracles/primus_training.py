"""Reference losses, gradients, logits and state dicts of Primus, from nnU-Net's dynamic_network_architectures.

    python oracles/primus_training.py              writes oracles/data/primus_*.json (committed)
    python oracles/primus_training.py load FILE    loads weights that plimsoll wrote into the network that FILE.json describes, strictly but for
                                                   second names of tensors that the file has

Needs torch, timm, dynamic-network-architectures >= 0.4.4 and safetensors. Batches and weights are given by formulas that the tests share. Of
gradients, norms and products with numbers of the same formula are stored. The last layer is a transposed convolution there; its weights and
gradients are compared with the axes of a convolution of one voxel.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from dynamic_network_architectures.architectures import primus as authors
from safetensors.torch import load_file

from swin_training import told
from unet_training import adamw, noise, reference

torch.set_num_threads(1)
DATA = Path(__file__).parent / "data"
VERSIONS = {1: authors.Primus, 2: authors.PrimusV2, 3: authors.PrimusV3}
GAIN = 1.0
HEAD = "up_projection.decode.2.weight"


def primus(c):
    """The network as nnU-Net's trainers build it: normalised attention, branches that begin as tenths."""
    net = VERSIONS[c["version"]](
        c["in_channels"], c["hidden_size"], (8, 8, 8), c["classes"], c["depths"][0], c["num_heads"][0], c["image_size"],
        drop_path_rate=c["path_dropout"], scale_attn_inner=True, init_values=0.1,
    )
    # timm holds cosines and sines in f32, also in a network of f64. In f64, f64 is a reference for f32.
    grid = [e // 8 for e in c["image_size"]]
    bands = c["hidden_size"] // c["num_heads"][0] // 6
    angles = 10000.0 ** (-np.arange(bands) / bands)
    places = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), -1).reshape(-1, 3, 1)
    turns = np.repeat((places * angles).reshape(len(places), -1), 2, -1)
    table = torch.tensor(np.concatenate([np.sin(turns), np.cos(turns)], -1))
    assert (net.eva.rope.pos_embed - table).abs().max() < 1e-5
    net.eva.rope.pos_embed = table
    return net


def fill(net):
    """Weights by the formula of crates/plimsoll-nn/tests/training/mod.rs, in which positions are a table."""
    for name, p in net.named_parameters():
        x = noise(sum((i + 1) * b for i, b in enumerate(name.encode())), p.numel())
        shape = p.flatten(1).transpose(0, 1).shape if name == HEAD else p.shape
        if name == "eva.pos_embed":
            x = 0.5 * x
        elif p.ndim > 1:
            x = x * np.sqrt(GAIN / (p.numel() // shape[0]))
        else:
            x = 1.0 + 0.2 * x if name.endswith(".weight") else 0.1 * x
        x = torch.tensor(x.reshape(shape), dtype=torch.float32)
        with torch.no_grad():
            p.copy_(x.transpose(0, 1).reshape(p.shape) if name == HEAD else x)


def run(name, c, n, settings):
    net = primus(c)
    fill(net)
    net.train()
    state = {key: list(value.shape) for key, value in net.state_dict().items()}
    patch = c["image_size"]
    record, gradients = reference(name, net, c, patch, n, 20, settings, {}, with_bf16=False)
    gradients = {k: told(g.flatten(1).transpose(0, 1) if k == HEAD else g) for k, g in gradients.items()}
    record |= {"gradients": gradients, "state": state, "gain": GAIN, "projections": logits(c, patch)}
    (DATA / f"primus_{name}.json").write_text(json.dumps(record) + "\n")


def logits(c, patch):
    """Products of the logits of an image with noise, in f64."""
    net = primus(c)
    fill(net)
    net = net.double().eval()
    image = torch.tensor(noise(1, c["in_channels"] * int(np.prod(patch))).reshape(1, c["in_channels"], *patch))
    with torch.no_grad():
        found = net(image).numpy().ravel()
    return [float(found @ noise(seed, found.size)) for seed in (7, 8, 9)]


def config(**more):
    return dict(
        name="primus", in_channels=1, classes=2, version=1, image_size=[16, 24, 16], hidden_size=24, depths=[2], num_heads=[2], path_dropout=0.0,
    ) | more


def sizes():
    """Parameters of nnU-Net's trainers, and the number of those that a normalisation cancels; the widths of decoders."""
    records = []
    for version, prefix in ((1, "Primus"), (2, "PrimusV2"), (3, "PrimusV3")):
        for size in "SBML":
            for classes in (2, 14) if version == 1 else (5,):
                # Nothing is computed, so that no weights are drawn.
                with torch.device("meta"):
                    net = getattr(authors, prefix + size)(1, classes, (8, 8, 8), (64, 64, 64))
                all = {name: p.numel() for name, p in net.named_parameters()}
                cancelled = sum(count for name, count in all.items() if ".stem." in name and name.endswith(".conv.bias"))
                decoder = [net.get_parameter(f"up_projection.decode.{s}.0.weight").shape[1] for s in (0, 1)]
                records.append(dict(
                    version=version, size=size.lower(), classes=classes, parameters=sum(all.values()), cancelled=cancelled, decoder=decoder,
                    hidden_size=net.eva.embed_dim, mlp=net.eva.blocks[0].mlp.fc2.in_features,
                ))
    (DATA / "primus_sizes.json").write_text(json.dumps(records) + "\n")


def load(path):
    """Loads a checkpoint of ours into the network that `path`.json describes: nothing may be left over, and what is missing must be a second
    name of what is there."""
    net = primus(json.loads(Path(f"{path}.json").read_text()))
    # Moments and averages of our checkpoints stand behind a slash.
    state = {name: tensor for name, tensor in load_file(path).items() if "/" not in name}
    missing, unexpected = net.load_state_dict(state, strict=False)
    assert not unexpected and all(".all_modules." in name for name in missing), (unexpected, missing)
    own = net.state_dict()
    assert all(torch.equal(own[name], tensor) and own[name].shape == tensor.shape for name, tensor in state.items())
    print(f"primus: {len(state)} tensors loaded, {len(missing)} are these under other names")


def main():
    # A learning rate at which PyTorch in f32 agrees with itself in f64 over twenty steps.
    slow = dict(adamw, lr=1e-4)
    run("v1", config(classes=3, in_channels=2, depths=[3], num_heads=[4]), 2, slow)
    run("v2", config(version=2, hidden_size=36, num_heads=[3]), 2, slow)
    run("v3", config(version=3, image_size=[16, 16, 16], hidden_size=12, num_heads=[1], depths=[1]), 1, slow)
    sizes()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["load", file]:
            load(file)
        case _:
            main()
