"""Reference losses, gradients and state dicts of residual networks, from PyTorch: nnU-Net's ResidualEncoderUNet, MONAI's SegResNet and
SegResNetDS.

    python oracles/residual_training.py              writes oracles/data/residual_*.{json,safetensors} (committed)
    python oracles/residual_training.py load FILE    loads weights that plimsoll wrote into the network that FILE.json describes, strictly

Needs torch, monai, safetensors, dynamic-network-architectures. Batches and weights are given by formulas that the tests share. Of large
gradients a part is stored.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from monai.networks.nets import SegResNet, SegResNetDS
from safetensors.torch import load_file, save_file

from unet_training import MAKERS, adamw, cube, dynunet_config, noise, reference, sgd

MOST = 512  # elements of a gradient that are stored


def dimensions(c):
    flat = all(window[0] == 1 for window in c.get("kernels", []) + c.get("strides", []))
    return c.get("dimensions", 2 if flat else 3)


def residual_encoder_unet(c):
    from dynamic_network_architectures.architectures.unet import ResidualEncoderUNet

    d = dimensions(c)
    conv, norm = (torch.nn.Conv3d, torch.nn.InstanceNorm3d) if d == 3 else (torch.nn.Conv2d, torch.nn.InstanceNorm2d)
    return ResidualEncoderUNet(
        c["in_channels"], len(c["features"]), c["features"], conv, [k[3 - d:] for k in c["kernels"]],
        [s[3 - d:] for s in c["strides"]], c["encoder_blocks"], c["classes"], c["decoder_convs"][::-1], conv_bias=True,
        norm_op=norm, norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=torch.nn.LeakyReLU,
        nonlin_kwargs={"inplace": True}, deep_supervision=True,
    )


def segresnet(c):
    return SegResNet(
        dimensions(c), c["init_filters"], c["in_channels"], c["classes"], blocks_down=c["encoder_blocks"],
        blocks_up=c["decoder_blocks"][::-1], upsample_mode=c["upsample"], norm=("GROUP", {"num_groups": c["norm_groups"]}),
    )


def segresnet_ds(c):
    return SegResNetDS(
        dimensions(c), c["init_filters"], c["in_channels"], c["classes"], norm="instance", blocks_down=c["encoder_blocks"],
        blocks_up=c["decoder_blocks"][::-1], dsdepth=c["deep_supervision"] + 1, upsample_mode=c["upsample"],
        resolution=c["resolution"] and c["resolution"][3 - dimensions(c):],
    )


MAKERS.update(resenc=residual_encoder_unet, segresnet=segresnet, segresnetds=segresnet_ds)


class Flat(torch.nn.Module):
    """A network of two dimensions on volumes of one slice."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, image):
        out = self.net(image[:, :, 0])
        return [o[:, :, None] for o in (out if isinstance(out, (list, tuple)) else [out])]

    def named_parameters(self, *args, **kwargs):
        return self.net.named_parameters(*args, **kwargs)


def fill(net, gain=6.0):
    """Weights by the formula of crates/plimsoll-nn/tests/training/mod.rs."""
    for name, p in net.named_parameters():
        seed = sum((i + 1) * b for i, b in enumerate(name.encode()))
        x = noise(seed, p.numel())
        if name.endswith("bias_table"):
            x = 0.5 * x
        elif p.ndim > 1:
            x = x * np.sqrt(gain / (p.numel() // p.shape[0]))
        else:
            x = 1.0 + 0.2 * x if name.endswith(".weight") else 0.1 * x
        with torch.no_grad():
            p.copy_(torch.tensor(x.reshape(p.shape), dtype=torch.float32))


def run(name, c, patch, n, settings, loss_options):
    folder = Path(__file__).parent / "data"
    net = MAKERS[c["name"]](c)
    fill(net)
    net.train()
    state = {key: list(value.shape) for key, value in net.state_dict().items()}
    if dimensions(c) == 2:
        net = Flat(net)
    record, gradients = reference(name, net, c, patch, n, 20, settings, loss_options, with_bf16=False)
    parts = {k: g.float().flatten()[:: -(-g.numel() // MOST)].contiguous() for k, g in gradients.items()}
    save_file(parts, folder / f"residual_{name}_gradients.safetensors")
    record["state"] = state
    (folder / f"residual_{name}.json").write_text(json.dumps(record) + "\n")


def states():
    """Names and shapes of what state dicts hold, of networks that are trained elsewhere, and of three and two dimensions."""
    four, flat = [cube(1), cube(2), cube(2), cube(2)], [[1, 1, 1]] + [[1, 2, 2]] * 2
    all = [dynunet_config([8, 8, 16, 16], [cube(3)] * 4, four, deep_supervision=2)]
    all.append(dynunet_config([8, 8, 16], [[1, 3, 3]] * 3, flat))
    for kernels, strides in [([cube(3)] * 4, four), ([[1, 3, 3]] * 3, flat)]:
        c = dynunet_config([8, 16, 16, 16][: len(strides)], kernels, strides, deep_supervision=len(strides) - 2)
        all.append(dict(c, name="plain", transposed_bias=True, encoder_convs=[1, 2, 2, 2][: len(strides)]))
    records = [dict(net=c, state={k: list(v.shape) for k, v in MAKERS[c["name"]](c).state_dict().items()}) for c in all]
    (Path(__file__).parent / "data/residual_states.json").write_text(json.dumps(records) + "\n")


def resenc_config(features, kernels, strides, blocks, classes=2):
    return dict(
        name="resenc", in_channels=1, classes=classes, features=features, kernels=kernels, strides=strides, encoder_blocks=blocks,
        decoder_convs=[1] * (len(features) - 1), affine=True, epsilon=1e-5, slope=0.01, deep_supervision=len(features) - 2,
    )


def segresnet_config(upsample, spatial=3, classes=2):
    return dict(
        name="segresnet", in_channels=1, classes=classes, dimensions=spatial, init_filters=8, encoder_blocks=[1, 2, 2, 4],
        decoder_blocks=[1, 1, 1], norm_groups=8, upsample=upsample, dropout=0.0,
    )


def segresnet_ds_config(upsample, resolution=None, spatial=3):
    return dict(
        name="segresnetds", in_channels=2, classes=3, dimensions=spatial, init_filters=8, encoder_blocks=[1, 2, 1],
        decoder_blocks=[1, 1], upsample=upsample, resolution=resolution, deep_supervision=1,
    )


def main():
    states()
    # A learning rate at which PyTorch in f32 agrees with itself in f64 over twenty steps.
    slow = dict(adamw, lr=1e-4)
    flat = [[1, 3, 3], [1, 3, 3], [1, 3, 3]]
    c = resenc_config([8, 12, 12], [[1, 3, 3], cube(3), cube(3)], [cube(1), [1, 2, 2], cube(2)], [1, 3, 2])
    run("resenc", c, [8, 16, 16], 2, slow, {})
    c = resenc_config([8, 16, 16], flat, [[1, 1, 1], [1, 2, 2], [1, 2, 2]], [1, 1, 2], 3)
    run("resenc_2d", c, [1, 24, 32], 2, slow, {"include_background": False})
    for mode in ["nontrainable", "deconv", "pixelshuffle"]:
        run(f"segresnet_{mode}", segresnet_config(mode), [16, 24, 16], 1, slow, {})
    run("segresnet_2d", segresnet_config("pixelshuffle", 2, 3), [1, 32, 48], 2, slow, {})
    run("segresnetds", segresnet_ds_config("deconv"), [8, 16, 12], 2, slow, {})
    run("segresnetds_anisotropic", segresnet_ds_config("nontrainable", [3.0, 1.0, 0.7]), [6, 16, 12], 1, slow, {})
    run("segresnetds_2d", segresnet_ds_config("deconv", None, 2), [1, 24, 16], 2, slow, {})
    run("segresnetds_pixelshuffle", segresnet_ds_config("pixelshuffle"), [8, 8, 12], 1, sgd, {})


def load(path):
    """Loads a checkpoint of ours into the network that `path`.json describes: nothing may be left over, and what is missing must be a second
    name of what is there."""
    c = json.loads(Path(f"{path}.json").read_text())
    net = MAKERS[c["name"]](c)
    # Moments and averages of our checkpoints stand behind a slash.
    state = {name: tensor for name, tensor in load_file(path).items() if "/" not in name}
    missing, unexpected = net.load_state_dict(state, strict=False)
    own = net.state_dict()
    loaded = {own[name].data_ptr() for name in state if name in own}
    lost = [name for name in missing if own[name].data_ptr() not in loaded]
    assert not unexpected and not lost, (unexpected, lost)
    assert all(torch.equal(own[name], tensor) for name, tensor in state.items())
    print(f"{c['name']}: {len(state)} tensors loaded, {len(missing)} are these under other names")


if __name__ == "__main__":
    if sys.argv[1:2] == ["load"]:
        load(sys.argv[2])
    else:
        main()
