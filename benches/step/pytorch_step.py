"""One training step of MONAI's DynUNet, SegResNet, SwinUNETR, UNETR, AttentionUnet or small MedNeXt, of nnU-Net's PlainConvUNet or ResidualEncoderUNet, of small STU-Net, of small Primus, or of timm's SE-ResNeXt50 in PyTorch: seconds and peak resident memory, as a line of JSON.

    python benches/step/pytorch_step.py --size 64 [--net plain] [--features 32,64,128,256] [--precision bf16] [--checkpoint] [--compile]

Dice + cross-entropy, AdamW, two classes, one channel (of SE-ResNeXt50 cross-entropy and three): what `plimsoll bench step` measures. PyTorch is fastest on a CPU
with jemalloc preloaded, as page faults of fresh buffers cost it a quarter of its time otherwise; `compare.py` does that. STU-Net is read from a clone of
https://github.com/uni-medical/STU-Net in the folder of the variable STUNET.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
from dynamic_network_architectures.architectures.primus import Primus
from dynamic_network_architectures.architectures.unet import PlainConvUNet, ResidualEncoderUNet
from dynamic_network_architectures.building_blocks.residual import BasicBlockD
from dynamic_network_architectures.building_blocks.simple_conv_blocks import StackedConvBlocks
from monai.losses import DiceCELoss
from monai.networks.blocks.dynunet_block import UnetBasicBlock
from monai.networks.blocks.segresnet_block import ResBlock
from monai.networks.blocks.mednext_block import MedNeXtBlock
from monai.networks.nets import UNETR, AttentionUnet, DynUNet, MedNeXt, SegResNet, SwinUNETR
from torch.utils.checkpoint import checkpoint

STAGES = {"dynunet": 5, "plain": 6, "resenc": 6, "segresnet": 1, "swinunetr": 1, "unetr": 1, "mednext": 1, "attentionunet": 5, "stunet": 6, "primus": 1, "seresnext50": 4}
FIRST = {"segresnet": 16, "swinunetr": 24, "unetr": 16, "attentionunet": 16, "stunet": 16, "primus": 396}
MOST = {"stunet": 256, "primus": 396}


def numbers(text):
    return [int(number) for number in text.split(",")]


def dynunet(features):
    stages = len(features)
    strides = [1] + [2] * (stages - 1)
    return DynUNet(
        spatial_dims=3,
        in_channels=1,
        out_channels=2,
        kernel_size=[3] * stages,
        strides=strides,
        upsample_kernel_size=strides[1:],
        filters=features,
        norm_name="INSTANCE",
    )


def plain(features):
    stages = len(features)
    return PlainConvUNet(
        1,
        stages,
        features,
        torch.nn.Conv3d,
        3,
        [1] + [2] * (stages - 1),
        2,
        2,
        2,
        conv_bias=True,
        norm_op=torch.nn.InstanceNorm3d,
        norm_op_kwargs={"eps": 1e-5, "affine": True},
        nonlin=torch.nn.LeakyReLU,
        nonlin_kwargs={"inplace": True},
        deep_supervision=True,
    )


def seresnext50(_features):
    import timm

    return timm.create_model("seresnext50_32x4d", num_classes=2)


def resenc(features):
    stages = len(features)
    return ResidualEncoderUNet(
        1,
        stages,
        features,
        torch.nn.Conv3d,
        3,
        [1] + [2] * (stages - 1),
        ([1, 3, 4] + [6] * stages)[:stages],
        2,
        1,
        conv_bias=True,
        norm_op=torch.nn.InstanceNorm3d,
        norm_op_kwargs={"eps": 1e-5, "affine": True},
        nonlin=torch.nn.LeakyReLU,
        nonlin_kwargs={"inplace": True},
        deep_supervision=True,
    )


def segresnet(features):
    return SegResNet(init_filters=features[0], in_channels=1, out_channels=2)


def swinunetr(features):
    return SwinUNETR(in_channels=1, out_channels=2, feature_size=features[0], use_checkpoint=args.checkpoint)


def mednext(features):
    """The small one of the paper, with kernels of three voxels."""
    return MedNeXt(init_filters=features[0], in_channels=1, out_channels=2, kernel_size=3, use_residual_connection=True)


def unetr(features):
    return UNETR(in_channels=1, out_channels=2, img_size=patch, feature_size=features[0])


def attentionunet(features):
    return AttentionUnet(spatial_dims=3, in_channels=1, out_channels=2, channels=features, strides=[2] * (len(features) - 1))


def stunet(features):
    """The authors' network, by the loader of the oracle."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "oracles"))
    from stunet_training import trainers

    stages = len(features)
    return trainers(os.environ["STUNET"]).STUNet(1, 2, [1] * stages, features, [[2] * 3] * (stages - 1), [[3] * 3] * stages)


def primus(features):
    """The small one as nnU-Net's trainers build it, with heads of 66 channels."""
    return Primus(1, features[0], (8, 8, 8), 2, 12, features[0] // 66, patch, drop_path_rate=0.2, scale_attn_inner=True, init_values=0.1)


def loss_of_heads(logits, label):
    """Dice and cross-entropy of each head except the coarsest, each weighted half of the next finer one."""
    if args.net == "seresnext50":
        return torch.nn.functional.cross_entropy(logits.float(), label)
    heads = list(logits)[:-1] if isinstance(logits, (list, tuple)) else [logits]
    weights = [0.5**place for place in range(len(heads))]
    total = 0.0
    for weight, head in zip(weights, heads):
        target = torch.nn.functional.interpolate(label.float(), head.shape[2:], mode="nearest").long()
        total = total + weight / sum(weights) * loss_of(head.float(), target)
    return total


def checkpointed(module):
    """The module's forward pass, with its activations recomputed in the backward pass."""
    inside = module.forward
    return lambda value: checkpoint(inside, value, use_reentrant=False)


def peak_rss_bytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


parser = argparse.ArgumentParser()
parser.add_argument("--net", choices=STAGES, default="dynunet")
parser.add_argument("--features", type=numbers)
parser.add_argument("--size", type=numbers, default=[64])
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
parser.add_argument("--checkpoint", action="store_true", help="compute each block again instead of keeping what is in it")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--forward", action="store_true", help="predict logits alone, in evaluation mode")
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.manual_seed(0)
features = args.features or [min(FIRST.get(args.net, 32) << stage, MOST.get(args.net, 320)) for stage in range(STAGES[args.net])]
networks = {
    "dynunet": dynunet,
    "plain": plain,
    "resenc": resenc,
    "segresnet": segresnet,
    "swinunetr": swinunetr,
    "unetr": unetr,
    "mednext": mednext,
    "attentionunet": attentionunet,
    "stunet": stunet,
    "primus": primus,
    "seresnext50": seresnext50,
}
patch = args.size * 3 if len(args.size) == 1 else args.size
model = networks[args.net](features)
if args.checkpoint:
    if args.net == "seresnext50":
        model.set_grad_checkpointing()
    for module in model.modules():
        if isinstance(module, (UnetBasicBlock, StackedConvBlocks, BasicBlockD, ResBlock, MedNeXtBlock)):
            module.forward = checkpointed(module)
step_model = torch.compile(model) if args.compile else model
if args.net == "seresnext50":
    image = torch.randn(args.batch, 3, *patch[1:])
    label = (torch.rand(args.batch) > 0.7).long()
else:
    image = torch.randn(args.batch, 1, *patch)
    label = (torch.rand(args.batch, 1, *patch) > 0.7).long()
loss_of = DiceCELoss(softmax=True, to_onehot_y=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

if args.forward:
    model.eval()
seconds = []
for _ in range(2 + args.steps):
    start = time.perf_counter()
    if args.forward:
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            step_model(image)
        seconds.append(time.perf_counter() - start)
        continue
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
        logits = step_model(image)
    loss_of_heads(logits, label).backward()
    optimizer.step()
    seconds.append(time.perf_counter() - start)
print(json.dumps({"seconds_per_step": statistics.median(seconds[2:]), "peak_rss_bytes": peak_rss_bytes()}))
