"""Reference results and gradients of ops on tokens, from PyTorch and MONAI in f64.

    python oracles/token_ops.py          writes oracles/token_ops.json

Needs torch and monai >= 1.5. Operands are given by a formula that the tests share.
"""

import json
from pathlib import Path

import torch
from monai.networks.nets import swin_unetr
from monai.networks.nets.swin_unetr import PatchMerging, PatchMergingV2, SwinTransformerBlock, compute_mask, get_window_size
from swin_training import Merging14
from unet_training import noise

torch.set_num_threads(1)


def operand(seed, *shape):
    x = torch.tensor(noise(seed, torch.Size(shape).numel()).reshape(shape))
    return x.requires_grad_()


def numbers(*tensors):
    return [t.detach().flatten().tolist() for t in tensors]


def channels_last(x):
    return x.movedim(1, -1)


def gelu():
    x, g = operand(1, 2, 3, 2, 2, 3), operand(2, 2, 3, 2, 2, 3)
    z = torch.nn.GELU()(4 * x)
    (z * g).sum().backward()
    # The operand is four times the formula's numbers.
    return numbers(z, x.grad / 4)


def token_norm():
    x, g, scale, shift = operand(1, 2, 5, 2, 2, 3), operand(2, 2, 5, 2, 2, 3), operand(3, 5), operand(4, 5)
    z = torch.nn.functional.layer_norm(channels_last(x), [5], scale, shift, 1e-5).movedim(-1, 1)
    (z * g).sum().backward()
    return numbers(z, x.grad, scale.grad, shift.grad)


def merging(mode, spatial):
    x = operand(1, 1, 2, *spatial)
    layer = mode(2, spatial_dims=len(spatial)).double()
    layer.norm = layer.reduction = torch.nn.Identity()
    y = layer(channels_last(x)).movedim(-1, 1)
    g = operand(2, *y.shape)
    (y * g).sum().backward()
    return numbers(y, x.grad)


def attention(spatial, window, shifted, heads, channels):
    """MONAI's block without its normalisation and its last linear layer."""
    shift = tuple(w // 2 for w in window) if shifted else (0,) * len(window)
    block = SwinTransformerBlock(channels, heads, window, shift, qkv_bias=True).double()
    block.norm1 = block.attn.proj = torch.nn.Identity()
    names = ["qkv.weight", "qkv.bias", "relative_position_bias_table"]
    parameters = dict(block.attn.named_parameters())
    for seed, name in enumerate(names):
        parameters[name].data = operand(3 + seed, *parameters[name].shape).detach()
    x, g = operand(1, 2, channels, *spatial), operand(2, 2, channels, *spatial)
    clipped, clipped_shift = get_window_size(spatial, window, shift)
    padded = [-(-n // w) * w for n, w in zip(spatial, clipped)]
    mask = compute_mask(padded, clipped, clipped_shift, "cpu").double()
    o = block.forward_part1(channels_last(x), mask).movedim(-1, 1)
    (o * g).sum().backward()
    return dict(
        spatial=spatial, window=clipped, shift=clipped_shift, table_window=window, heads=heads, channels=channels,
        values=numbers(o, x.grad, *(parameters[name].grad for name in names)),
    )


record = dict(
    gelu=gelu(),
    token_norm=token_norm(),
    merging=merging(PatchMerging, (3, 4, 5)),
    merging_14=merging(Merging14, (3, 4, 5)),
    merging_v2=merging(PatchMergingV2, (3, 4, 5)),
    merging_flat=merging(PatchMergingV2, (5, 4)),
    attention=[
        attention((4, 3, 5), (3, 3, 3), False, 2, 4),
        attention((4, 3, 5), (3, 3, 3), True, 2, 4),
        attention((2, 2, 2), (3, 3, 3), True, 1, 3),
        attention((5, 4), (3, 3), True, 3, 6),
    ],
    torch=torch.__version__,
)
text = json.dumps(record)
(Path(__file__).parent / "token_ops.json").write_text(text + "\n")
print(len(text), "bytes")
