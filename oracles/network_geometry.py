"""Logits of MONAI's and nnU-Net's networks over the range of their kernels, strides, blocks and other settings of geometry.

    python oracles/network_geometry.py      writes oracles/network_geometry.json

Needs torch, monai and dynamic-network-architectures. Weights and images are given by the formulas of unet_training.noise, and everything
is computed in f64. Of each network the sums of its logits times noise are stored, or that the original refuses its settings.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from monai.networks.nets import AttentionUnet, DynUNet, MedNeXt, SegResNet, SwinUNETR, UNETR, UNet

from residual_training import MAKERS, Flat, dimensions
from unet_training import noise

torch.set_num_threads(1)
NETS = {"AttentionUnet": AttentionUnet, "DynUNet": DynUNet, "MedNeXt": MedNeXt, "SegResNet": SegResNet, "SwinUNETR": SwinUNETR, "UNETR": UNETR,
        "UNet": UNet}


def fill(net):
    """Parameters and running statistics by name."""
    for name, p in list(net.named_parameters()) + list(net.named_buffers()):
        if not p.is_floating_point():
            continue
        x = noise(sum((i + 1) * b for i, b in enumerate(name.encode())), p.numel())
        if name.endswith(("bias_table", "position_embeddings")):
            x = 0.5 * x
        elif name.endswith(".A.weight"):
            x = (0.25 + 0.2 * x).astype(np.float32)
        elif p.ndim > 1:
            x = x * np.sqrt(6.0 / (p.numel() // p.shape[0]))
        else:
            x = 1.0 + 0.2 * x if name.endswith((".weight", ".running_var")) else 0.1 * x
        with torch.no_grad():
            p.copy_(torch.tensor(x.reshape(p.shape)))


def case(record, make, channels, patch, flat=False):
    """The record with projections of the logits, or with `refused`."""
    record = dict(record, patch=patch)
    try:
        net = make().double()
        fill(net)
        net.eval()
        image = torch.tensor(noise(1, channels * int(np.prod(patch))).reshape(1, channels, *patch))
        with torch.no_grad():
            out = (Flat(net) if flat else net)(image)
        logits = (out[0] if isinstance(out, (list, tuple)) else out).numpy().ravel()
        record["projections"] = [float(logits @ noise(seed, logits.size)) for seed in (7, 8, 9)]
    except Exception as error:
        record["refused"] = type(error).__name__
    print(json.dumps(record), file=sys.stderr)
    return record


def monai(name, patch, **arguments):
    record = {"monai": {"name": name, **arguments}}
    return case(record, lambda: NETS[name](**arguments), arguments.get("in_channels", 1), patch)


def dynunet(kernels, strides, patch, up=None, **more):
    options = dict(spatial_dims=3, in_channels=1, out_channels=2, filters=[3, 4, 5, 6][: len(strides)]) | more
    return monai(
        "DynUNet", patch, kernel_size=kernels, strides=strides, upsample_kernel_size=up or strides[1:], **options,
    )


def dynunets():
    for kernel in range(1, 8):
        for stride in range(1, 5):
            edge = stride if stride > 1 else 4
            yield dynunet([3, kernel, 3], [1, stride, 1], [2 * edge, edge, 3 * edge])
    yield dynunet([3, [1, 3, 5], [5, 3, 1]], [1, [1, 2, 3], [3, 2, 1]], [6, 8, 6])
    yield dynunet([[7, 5, 3], 3, 3, 1], [1, 3, [2, 1, 1], 1], [12, 6, 6])
    yield dynunet([3, 3, 3], [1, 2, 2], [8, 8, 8], up=[2, [2, 2, 1]])
    yield dynunet([3, 3, 3], [1, 2, 2], [8, 8, 8], up=[3, 3])
    yield dynunet([3, 3, 3], [2, 2, 2], [16, 16, 16])
    yield dynunet([3, 3, 3], [1, 3, 3], [18, 9, 9], norm_name="batch", trans_bias=True)
    yield dynunet([3, 3, 3], [1, 3, 2], [12, 12, 6], act_name=["leakyrelu", {"negative_slope": 0.1}], norm_name=["INSTANCE", {"affine": False}])
    yield dynunet([3, 3, 3, 3], [1, 3, 2, 1], [12, 12, 6], deep_supervision=True, deep_supr_num=2)


def segresnet(down, up, patch, **more):
    options = dict(init_filters=4, in_channels=1, out_channels=2, norm=["GROUP", {"num_groups": 2}]) | more
    return monai("SegResNet", patch, blocks_down=down, blocks_up=up, **options)


def segresnets():
    for mode in ["nontrainable", "deconv", "pixelshuffle"]:
        yield segresnet([1, 1, 1], [2, 1], [8, 8, 12], upsample_mode=mode)
        yield segresnet([2, 1, 1], [1, 2], [8, 12, 8], upsample_mode=mode)
    yield segresnet([1, 2, 1, 1], [3, 1, 2], [16, 8, 8])
    yield segresnet([1, 2], [1, 1], [8, 8, 8])
    yield segresnet([1, 2, 1], [1], [8, 8, 8])


def unet(strides, patch, **more):
    options = dict(spatial_dims=3, in_channels=1, out_channels=2, channels=[3, 4, 5, 6][: len(strides) + 1]) | more
    return monai("UNet", patch, strides=strides, **options)


def unets():
    yield unet([2, 1], [8, 8, 8], up_kernel_size=1)
    for units in (0, 1, 2):
        for kernel, up in [(3, 3), (5, 3), (3, 5), (1, 3), ([1, 3, 5], [3, 5, 3]), (2, 3), (3, 2)]:
            yield unet([2, [1, 2, 3]], [8, 8, 12], num_res_units=units, kernel_size=kernel, up_kernel_size=up)
        yield unet([1, 3], [6, 6, 9], num_res_units=units, norm="batch")
        yield unet([3, 3], [9, 9, 18], num_res_units=units, bias=False)
        yield unet([2, 1, 2], [8, 8, 8], num_res_units=units)
        yield unet([2, 4], [16, 8, 8], num_res_units=units, up_kernel_size=5, act=["leakyrelu", {"negative_slope": 0.3}])
        yield unet([[2, 1, 1], 1], [8, 6, 7], num_res_units=units, act="relu")
        yield unet([2], [8, 6, 4], num_res_units=units, channels=[3, 5])


def swinunetrs():
    base = dict(in_channels=1, out_channels=2, feature_size=12, num_heads=[1, 2, 3, 6])
    yield monai("SwinUNETR", [64, 32, 32], **base, depths=[2, 1, 1, 1], window_size=4)
    more = dict(window_size=5, normalize=False, qkv_bias=False, mlp_ratio=1.5, patch_norm=True, downsample="mergingv2")
    yield monai("SwinUNETR", [32, 32, 64], **base, depths=[1, 2, 1, 1], **more)
    yield monai("SwinUNETR", [48, 32, 32], **base, depths=[1, 1, 1, 1], window_size=4)


def mednexts():
    base = dict(init_filters=4, in_channels=1, out_channels=2, use_residual_connection=True)
    for kernel in (1, 3, 5, 7):
        more = dict(blocks_down=[1, 2], blocks_bottleneck=1, blocks_up=[2, 1], encoder_expansion_ratio=[2, 3])
        yield monai("MedNeXt", [8, 12, 4], **base, **more, kernel_size=kernel, bottleneck_expansion_ratio=4)
        yield monai("MedNeXt", [4, 4, 8], **base, **more, kernel_size=kernel, decoder_expansion_ratio=3, global_resp_norm=True)
    yield monai("MedNeXt", [16, 32, 16], **base, kernel_size=3, deep_supervision=True)
    yield monai("MedNeXt", [8, 6, 8], **base, kernel_size=3, blocks_down=[1, 1], blocks_up=[1, 1])
    yield monai("MedNeXt", [8, 8, 8], **base | dict(use_residual_connection=False), blocks_down=[1], blocks_up=[1], kernel_size=3)


def attention_unets():
    base = dict(spatial_dims=3, in_channels=1, out_channels=2)
    for kernel in (1, 3, 5, 2):
        yield monai("AttentionUnet", [8, 8, 12], **base, channels=[4, 5, 6], strides=[2, [2, 2, 3]], kernel_size=kernel)
    yield monai("AttentionUnet", [8, 16, 8], **base, channels=[2, 3, 4, 5], strides=[2, 1, 2, 2])
    yield monai("AttentionUnet", [6, 6, 6], **base | dict(in_channels=2, out_channels=3), channels=[3, 4], strides=[3])
    yield monai("AttentionUnet", [8, 8, 8], **base, channels=[4, 4], strides=[2], up_kernel_size=5)


def unetrs():
    base = dict(in_channels=1, out_channels=2, feature_size=3, hidden_size=12, mlp_dim=20, num_heads=2)
    for size in ([16, 32, 16], [16, 16, 16], [32, 16, 24]):
        yield monai("UNETR", size, **base, img_size=size)
    yield monai("UNETR", [32, 32, 32], **base, img_size=32, qkv_bias=True)
    yield monai("UNETR", [16, 32, 32], **base | dict(in_channels=2, out_channels=3, num_heads=4, mlp_dim=7), img_size=[16, 32, 32])
    yield monai("UNETR", [16, 16, 32], **base, img_size=[16, 16, 32], res_block=False)
    yield monai("UNETR", [16, 16, 32], **base | dict(num_heads=5), img_size=[16, 16, 32])


def own(net, patch):
    flat = dimensions(net) == 2
    return case({"net": net}, lambda: MAKERS[net["name"]](net), net["in_channels"], patch, flat)


def u_net(name, kernels, strides, patch, **more):
    stages = len(strides)
    common = dict(
        name=name, in_channels=1, classes=2, features=[3, 4, 5, 6][:stages], kernels=kernels, strides=strides,
        decoder_convs=[2, 1, 1][: stages - 1], affine=True, epsilon=1e-5, slope=0.01, deep_supervision=stages - 2,
    )
    encoder = [1, 2, 2, 1][:stages]
    own_of = {"plain": dict(encoder_convs=encoder, transposed_bias=True), "resenc": dict(encoder_blocks=encoder)}
    return own(common | own_of[name] | more, patch)


def u_nets():
    for name in ["plain", "resenc"]:
        for kernel in range(1, 8):
            for stride in range(1, 5):
                edge = stride if stride > 1 else 4
                windows = [[3] * 3, [kernel] * 3, [3] * 3], [[1] * 3, [stride] * 3, [1] * 3]
                yield u_net(name, *windows, [2 * edge, edge, 3 * edge])
        yield u_net(name, [[3] * 3, [1, 3, 5], [5, 3, 1]], [[1] * 3, [1, 2, 3], [3, 2, 1]], [6, 8, 6])
        yield u_net(name, [[1, 3, 3], [1, 5, 3], [1, 3, 1]], [[1] * 3, [1, 3, 2], [1, 2, 3]], [1, 12, 12])
        yield u_net(name, [[7, 5, 3], [3] * 3, [3] * 3, [1] * 3], [[1] * 3, [3] * 3, [2, 1, 1], [1] * 3], [12, 6, 6])
        yield u_net(name, [[3] * 3] * 3, [[1] * 3, [3] * 3, [3] * 3], [18, 9, 9], features=[3, 3, 3])


def segresnet_ds():
    base = dict(name="segresnetds", in_channels=1, classes=2, dimensions=3, init_filters=4, deep_supervision=0)
    for upsample in ["nontrainable", "deconv", "pixelshuffle"]:
        for resolution in [None, [1.0, 1.0, 1.0], [4.0, 1.0, 1.0], [1.0, 3.0, 1.7], [1.0, 1.0, 2.0], [5.0, 1.3, 0.6]]:
            net = dict(base, encoder_blocks=[1, 2, 1, 1], decoder_blocks=[1, 2, 1], upsample=upsample, resolution=resolution)
            yield own(net, [8, 8, 16])


def main():
    records = [*dynunets(), *segresnets(), *unets(), *swinunetrs(), *mednexts(), *attention_unets(), *unetrs(), *u_nets(), *segresnet_ds()]
    lines = ",\n".join(json.dumps(record) for record in records)
    (Path(__file__).parent / "network_geometry.json").write_text(f"[\n{lines}\n]\n")
    print(len(records), "networks,", sum("refused" in record for record in records), "refused")


main()
