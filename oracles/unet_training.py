"""Reference losses and gradients of U-Nets, from PyTorch.

    python oracles/unet_training.py small          writes oracles/data/unet_*.{json,safetensors,pth} (committed)
    python oracles/unet_training.py full DIR       the full-size comparison of the documentation, into DIR

Needs torch, monai, safetensors, dynamic-network-architectures. Batches are made by a formula that the tests know too, so
that only weights, losses and gradients are stored.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from monai.losses import DiceCELoss
from monai.networks.nets import DynUNet
from safetensors.torch import save_file

torch.set_num_threads(2)


def noise(seed, count):
    """conformance::noise: numbers in (-1, 1), exactly the same as in Rust."""
    x = (np.uint64(seed) << np.uint64(32)) ^ np.arange(count, dtype=np.uint64) ^ np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        for m in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
            x = (x ^ (x >> np.uint64(30))) * np.uint64(m)
    return (x >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0


def batch(step, n, channels, classes, patch):
    voxels = int(np.prod(patch))
    image = noise(2 * step + 1, n * channels * voxels).reshape(n, channels, *patch)
    # Labels that have something to do with the image, so that the loss can fall.
    level = noise(2 * step + 2, n * voxels).reshape(n, *patch) * 0.5 + image[:, 0]
    labels = np.clip(np.floor((level + 1.5) / 3.0 * classes), 0, classes - 1)
    return torch.tensor(image, dtype=torch.float32), torch.tensor(labels[:, None], dtype=torch.int64)


def plain_conv_unet(c):
    from dynamic_network_architectures.architectures.unet import PlainConvUNet
    from dynamic_network_architectures.initialization.weight_init import InitWeights_He

    net = PlainConvUNet(
        c["in_channels"], len(c["features"]), c["features"], torch.nn.Conv3d, c["kernels"], c["strides"],
        c["encoder_convs"], c["classes"], c["decoder_convs"][::-1], conv_bias=True,
        norm_op=torch.nn.InstanceNorm3d, norm_op_kwargs={"eps": 1e-5, "affine": True},
        nonlin=torch.nn.LeakyReLU, nonlin_kwargs={"inplace": True}, deep_supervision=True,
    )
    net.apply(InitWeights_He(1e-2))
    return net


def dynunet(c):
    return DynUNet(
        3, c["in_channels"], c["classes"], c["kernels"], c["strides"], c["strides"][1:], filters=c["features"],
        norm_name=("INSTANCE", {"affine": c["affine"]}), deep_supervision=c["deep_supervision"] > 0,
        deep_supr_num=max(1, c["deep_supervision"]),
    )


def outputs(net, c, image):
    """Logits of all heads, the finest first, each at its own resolution."""
    if c["family"] == "PlainConvUNet":
        return net(image)
    out = net(image)
    if c["deep_supervision"] == 0:
        return [out]
    return [out[:, 0]] + list(net.heads)


def head_weights(heads):
    counted = heads - 1 if heads > 2 else heads
    w = [0.5**i if i < counted else 0.0 for i in range(heads)]
    return [x / sum(w) for x in w]


def run(name, c, patch, n, steps, optimizer, loss_options, folder, suffix, grads):
    torch.manual_seed(11)
    net = plain_conv_unet(c) if c["family"] == "PlainConvUNet" else dynunet(c)
    net.train()
    # Scales and shifts off their initial values, so that their gradients say something.
    for key, p in net.named_parameters():
        if p.ndim == 1:
            with torch.no_grad():
                p += 0.1 * torch.randn_like(p)
    weights = folder / f"unet_{name}.{suffix}"
    state = {k: v.contiguous() for k, v in net.state_dict().items()}
    if suffix == "pth":
        torch.save({"network_weights": state, "epoch": 3}, weights)
    else:
        unique = {k: v.clone() for k, v in state.items() if not k.startswith("skip_layers.")}
        save_file(unique, weights)
    if optimizer["name"] == "adamw":
        opt = torch.optim.AdamW(
            net.parameters(), lr=optimizer["lr"], betas=(0.9, 0.999), eps=1e-8, weight_decay=optimizer["weight_decay"]
        )
    else:
        opt = torch.optim.SGD(
            net.parameters(), lr=optimizer["lr"], momentum=0.99, nesterov=True, weight_decay=optimizer["weight_decay"]
        )
    loss_of = DiceCELoss(softmax=True, to_onehot_y=True, **loss_options)
    losses, norms = [], []
    for step in range(steps):
        image, labels = batch(step, n, c["in_channels"], c["classes"], patch)
        opt.zero_grad()
        loss = 0.0
        heads = outputs(net, c, image)
        for weight, logits in zip(head_weights(len(heads)), heads):
            if weight == 0.0:
                continue
            target = torch.nn.functional.interpolate(labels.float(), logits.shape[2:], mode="nearest-exact").long()
            loss = loss + weight * loss_of(logits, target)
        loss.backward()
        if step == 0 and grads:
            found = {k: p.grad.clone() for k, p in net.named_parameters() if p.grad is not None}
            # nnU-Net's module tree names every convolution twice, and its biases before a norm have no gradient but noise.
            save_file(found, folder / f"unet_{name}_gradients.safetensors")
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), optimizer["max_norm"] or float("inf"))
        opt.step()
        losses.append(float(loss))
        norms.append(float(norm))
    record = dict(
        net=c, patch=patch, batch=n, optimizer=optimizer, loss=loss_options, weights=weights.name,
        losses=losses, gradient_norms=norms, torch=torch.__version__,
    )
    (folder / f"unet_{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    print(name, losses[0], losses[-1])


def dynunet_config(features, kernels, strides, in_channels=1, classes=2, affine=True, deep_supervision=0):
    return dict(
        family="DynUNet", in_channels=in_channels, classes=classes, features=features, kernels=kernels, strides=strides,
        encoder_convs=[2] * len(features), decoder_convs=[2] * (len(features) - 1), affine=affine, epsilon=1e-5,
        slope=0.01, transposed_bias=False, deep_supervision=deep_supervision,
    )


def cube(n):
    return [n, n, n]


adamw = dict(name="adamw", lr=1e-3, weight_decay=0.01, max_norm=None)
sgd = dict(name="sgd", lr=0.01, weight_decay=3e-5, max_norm=12.0)


def small():
    folder = Path(__file__).parent / "data"
    c = dynunet_config([8, 12, 20], [cube(3)] * 3, [cube(1), cube(2), cube(2)])
    run("plain", c, [16, 16, 16], 2, 20, adamw, {}, folder, "safetensors", True)
    c = dynunet_config([8, 12, 16, 20], [cube(3)] * 4, [cube(1), cube(2), cube(2), cube(2)], 2, 3, False, 2)
    run("supervised", c, [16, 16, 32], 1, 20, adamw, {"include_background": False}, folder, "safetensors", True)
    c = dynunet_config([8, 12, 20], [[1, 3, 3], [1, 3, 3], cube(3)], [cube(1), [1, 2, 2], cube(2)], 1, 3)
    run("anisotropic", c, [6, 24, 16], 2, 20, sgd, {"batch": True, "squared_pred": True}, folder, "safetensors", True)
    c = dynunet_config([6, 10, 18], [[1, 3, 3], cube(3), cube(3)], [cube(1), [1, 2, 2], cube(2)], 1, 2, True, 1)
    c.update(family="PlainConvUNet", transposed_bias=True, encoder_convs=[2, 1, 2], decoder_convs=[1, 2])
    run("nnunet", c, [8, 16, 16], 2, 20, sgd, {"batch": True, "include_background": False}, folder, "pth", True)


def full(folder):
    folder.mkdir(parents=True, exist_ok=True)
    features, five = [32, 64, 128, 256, 320], [cube(3)] * 5
    strides = [cube(1)] + [cube(2)] * 4
    run("full", dynunet_config(features, five, strides), [32, 48, 64], 1, 20, adamw, {}, folder, "pth", True)
    c = dynunet_config(features, five, strides, deep_supervision=3)
    run("full_supervised", c, [32, 48, 64], 1, 20, adamw, {}, folder, "pth", True)
    kernels = [[1, 3, 3], [1, 3, 3], cube(3), cube(3), cube(3)]
    c = dynunet_config(features, kernels, [cube(1), [1, 2, 2], cube(2), cube(2), cube(2)])
    run("full_anisotropic", c, [16, 64, 64], 1, 20, adamw, {}, folder, "pth", True)


if __name__ == "__main__":
    if sys.argv[1] == "full":
        full(Path(sys.argv[2]))
    else:
        small()
