"""Reference losses and gradients of U-Nets, from PyTorch.

    python oracles/unet_training.py small          writes oracles/data/unet_*.{json,safetensors,pth} (committed)
    python oracles/unet_training.py full DIR       the full-size comparison of the documentation, into DIR

Needs torch, monai, safetensors, dynamic-network-architectures. Batches are given by a formula that the tests share, so
only weights, losses and gradients are stored.
"""

import copy
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
    # Labels that depend on the image, so that the loss can decrease.
    level = noise(2 * step + 2, n * voxels).reshape(n, *patch) * 0.5 + image[:, 0]
    labels = np.clip(np.floor((level + 1.5) / 3.0 * classes), 0, classes - 1)
    return torch.tensor(image, dtype=torch.float32), torch.tensor(labels[:, None], dtype=torch.int64)


def dimensions(c):
    """2 if all windows are flat along the depth."""
    return 2 if all(window[0] == 1 for window in c["kernels"] + c["strides"]) else 3


def plain_conv_unet(c):
    from dynamic_network_architectures.architectures.unet import PlainConvUNet
    from dynamic_network_architectures.initialization.weight_init import InitWeights_He

    d = dimensions(c)
    conv, norm = (torch.nn.Conv3d, torch.nn.InstanceNorm3d) if d == 3 else (torch.nn.Conv2d, torch.nn.InstanceNorm2d)
    net = PlainConvUNet(
        c["in_channels"], len(c["features"]), c["features"], conv, [k[3 - d:] for k in c["kernels"]],
        [s[3 - d:] for s in c["strides"]], c["encoder_convs"], c["classes"], c["decoder_convs"][::-1], conv_bias=True,
        norm_op=norm, norm_op_kwargs={"eps": 1e-5, "affine": True},
        nonlin=torch.nn.LeakyReLU, nonlin_kwargs={"inplace": True}, deep_supervision=True,
    )
    net.apply(InitWeights_He(1e-2))
    return net


def dynunet(c):
    d = dimensions(c)
    kernels, strides = [k[3 - d:] for k in c["kernels"]], [s[3 - d:] for s in c["strides"]]
    return DynUNet(
        d, c["in_channels"], c["classes"], kernels, strides, strides[1:], filters=c["features"],
        norm_name=("INSTANCE", {"affine": c["affine"]}), deep_supervision=c["deep_supervision"] > 0,
        deep_supr_num=max(1, c["deep_supervision"]), act_name=("leakyrelu", {"negative_slope": c["slope"]}),
    )


MAKERS = {"plain": plain_conv_unet, "dynunet": dynunet}


def outputs(net, c, image):
    """Logits of all heads, the finest first, each at its own resolution."""
    out = net(image)
    if c["name"] == "dynunet" and c["deep_supervision"] > 0:
        return [out[:, 0]] + list(net.heads)
    return list(out) if isinstance(out, (list, tuple)) else [out]


def head_weights(c, heads):
    # MONAI's DeepSupervisionLoss counts the coarsest head too.
    counted = heads - 1 if heads > 2 and c["name"] != "segresnetds" else heads
    w = [0.5**i if i < counted else 0.0 for i in range(heads)]
    return [x / sum(w) for x in w]


def loss_over(net, c, loss_of, image, labels, bf16):
    loss = 0.0
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        heads = outputs(net, c, image)
    if bf16:
        heads = [logits.float() for logits in heads]
    for weight, logits in zip(head_weights(c, len(heads)), heads):
        if weight > 0.0:
            target = torch.nn.functional.interpolate(labels.float(), logits.shape[2:], mode="nearest-exact").long()
            loss = loss + weight * loss_of(logits, target)
    return loss


def optimizer_of(net, settings):
    if settings["name"] == "adamw":
        return torch.optim.AdamW(
            net.parameters(), lr=settings["lr"], betas=(0.9, 0.999), eps=1e-8, weight_decay=settings["weight_decay"]
        )
    return torch.optim.SGD(
        net.parameters(), lr=settings["lr"], momentum=0.99, nesterov=True, weight_decay=settings["weight_decay"]
    )


def train(net, c, patch, n, steps, settings, loss_of, bf16=False):
    """Losses, gradient norms, and the gradients of the first step."""
    optimizer = optimizer_of(net, settings)
    dtype = next(net.parameters()).dtype
    losses, norms, first = [], [], None
    for step in range(steps):
        image, labels = batch(step, n, c["in_channels"], c["classes"], patch)
        optimizer.zero_grad()
        loss = loss_over(net, c, loss_of, image.to(dtype), labels, bf16)
        loss.backward()
        if first is None:
            first = {k: p.grad.clone() for k, p in net.named_parameters() if p.grad is not None and p.grad.any()}
        norms.append(float(torch.nn.utils.clip_grad_norm_(net.parameters(), settings["max_norm"] or float("inf"))))
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, norms, first


def run(name, c, patch, n, steps, settings, loss_options, folder, suffix):
    torch.manual_seed(11)
    net = MAKERS[c["name"]](c)
    net.train()
    # Scales and shifts off their initial values, so that their gradients are informative.
    for key, p in net.named_parameters():
        if p.ndim == 1:
            with torch.no_grad():
                p += 0.1 * torch.randn_like(p)
    weights = folder / f"unet_{name}.{suffix}"
    state = {k: v.clone() for k, v in net.state_dict().items()}
    if suffix == "pth":
        torch.save({"network_weights": state, "epoch": 3}, weights)
    else:
        save_file({k: v for k, v in state.items() if not k.startswith("skip_layers.")}, weights)
    record, gradients = reference(name, net, c, patch, n, steps, settings, loss_options)
    save_file({k: g.float() for k, g in gradients.items()}, folder / f"unet_{name}_gradients.safetensors")
    record["weights"] = weights.name
    (folder / f"unet_{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def reference(name, net, c, patch, n, steps, settings, loss_options, with_bf16=True):
    """What the tests compare with, and the exact gradients of the first step."""
    loss_of = DiceCELoss(softmax=True, to_onehot_y=True, **loss_options)
    # The same in f64 tells how far f32 can be trusted: an activation near the kink of the leaky ReLU that rounds to the
    # other side changes gradients by more than rounding, and AdamW's first steps follow signs.
    exact, rounded = copy.deepcopy(net).double(), copy.deepcopy(net)
    losses, norms, own = train(net, c, patch, n, steps, settings, loss_of)
    exact_losses, _, gradients = train(exact, c, patch, n, steps, settings, loss_of)
    rounded_losses = train(rounded, c, patch, n, steps, settings, loss_of, bf16=True)[0] if with_bf16 else []
    if not np.isfinite(rounded_losses).all():
        print(f"{name}: PyTorch's own losses with bf16 are not finite")
        rounded_losses = []
    # A shift that a normalisation behind it cancels has a gradient of rounding errors.
    cancelled = sorted(k for k, g in gradients.items() if g.norm() < 1e-10)
    gradients = {k: g for k, g in gradients.items() if k not in cancelled}
    off = {k: ((own[k] - g).norm() / g.norm()).item() for k, g in gradients.items()}
    loss_off = max(abs(a - b) / b for a, b in zip(losses, exact_losses))
    record = dict(
        net=c, patch=patch, batch=n, optimizer=settings, loss=loss_options, losses=losses,
        exact_losses=exact_losses, bf16_losses=rounded_losses, gradient_norms=norms, gradient_error=max(off.values()),
        cancelled=cancelled, torch=torch.__version__,
    )
    print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}; PyTorch in f32 is off PyTorch in f64 by {loss_off:.1e} in "
          f"losses, {max(off.values()):.1e} in gradients")
    return record, gradients


def dynunet_config(features, kernels, strides, in_channels=1, classes=2, affine=True, deep_supervision=0):
    return dict(
        name="dynunet", in_channels=in_channels, classes=classes, features=features, kernels=kernels, strides=strides,
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
    run("plain", c, [16, 16, 16], 2, 20, adamw, {}, folder, "safetensors")
    c = dynunet_config([8, 12, 16, 20], [cube(3)] * 4, [cube(1), cube(2), cube(2), cube(2)], 2, 3, False, 2)
    # At a learning rate of 1e-3 this one diverges from itself: PyTorch in f32 is 3e-4 off PyTorch in f64 by step 15.
    slow = dict(adamw, lr=1e-4)
    run("supervised", c, [16, 16, 32], 1, 20, slow, {"include_background": False}, folder, "safetensors")
    c = dynunet_config([8, 12, 20], [[1, 3, 3], [1, 3, 3], cube(3)], [cube(1), [1, 2, 2], cube(2)], 1, 3)
    run("anisotropic", c, [6, 24, 16], 2, 20, sgd, {"batch": True, "squared_pred": True}, folder, "safetensors")
    c = dynunet_config([6, 10, 18], [[1, 3, 3], cube(3), cube(3)], [cube(1), [1, 2, 2], cube(2)], 1, 2, True, 1)
    c.update(name="plain", transposed_bias=True, encoder_convs=[2, 1, 2], decoder_convs=[1, 2])
    run("nnunet", c, [8, 16, 16], 2, 20, sgd, {"batch": True, "include_background": False}, folder, "pth")


def full(folder):
    """Each network with nnU-Net's optimizer, and with AdamW at a rate at which PyTorch agrees with itself in f64. And
    without the kink of the leaky ReLU (a slope of 1), where f32 can be trusted."""
    folder.mkdir(parents=True, exist_ok=True)
    features, five = [32, 64, 128, 256, 320], [cube(3)] * 5
    strides = [cube(1)] + [cube(2)] * 4
    flat = [[1, 3, 3], [1, 3, 3], cube(3), cube(3), cube(3)]
    flat_strides = [cube(1), [1, 2, 2], cube(2), cube(2), cube(2)]
    slow = dict(adamw, lr=1e-4)
    for name, c, patch in [
        ("full", dynunet_config(features, five, strides), [32, 48, 64]),
        ("full_supervised", dynunet_config(features, five, strides, deep_supervision=3), [32, 48, 64]),
        ("full_anisotropic", dynunet_config(features, flat, flat_strides), [16, 64, 64]),
    ]:
        run(name + "_smooth", dict(c, slope=1.0), patch, 1, 5, sgd, {}, folder, "pth")
        run(name + "_sgd", c, patch, 1, 20, sgd, {}, folder, "pth")
        run(name + "_adamw", c, patch, 1, 20, slow, {}, folder, "pth")


if __name__ == "__main__":
    if sys.argv[1] == "full":
        full(Path(sys.argv[2]))
    else:
        small()
