"""One training step of MONAI's DynUNet on a GPU in PyTorch: seconds and peak memory, as a line of JSON.

    python benches/gpu/step.py --size 96 [--batch 1] [--bf16] [--channels-last] [--compile] [--forward]

The network, loss and optimizer are those of `plimsoll bench step --net dynunet` and of `benches/step/pytorch_step.py`. `--bf16` is
autocast (AMP), `--channels-last` the memory format channels_last_3d. Where MONAI is not installed, a U-Net of the same convolutions and
norms stands in, and the line says so. `used` is what the process holds of the card, its context included, as the driver counts it while
nobody else uses the card; `peak` is what the allocator has handed out at most.
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=96)
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--forward", action="store_true")
parser.add_argument("--steps", type=int, default=5)
args = parser.parse_args()

FEATURES = [32, 64, 128, 256, 320]


class Twice(nn.Sequential):
    def __init__(self, before, after, stride):
        def conv(a, b, stride):
            return [nn.Conv3d(a, b, 3, stride, 1, bias=False), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01, inplace=True)]

        super().__init__(*conv(before, after, stride), *conv(after, after, 1))


class UNet(nn.Module):
    """Stages of two convolutions, halved by strides and doubled by transposed convolutions, as DynUNet's."""

    def __init__(self):
        super().__init__()
        before = [1, *FEATURES]
        self.down = nn.ModuleList(Twice(a, b, 1 if i == 0 else 2) for i, (a, b) in enumerate(zip(before, FEATURES)))
        pairs = list(zip(FEATURES[:0:-1], FEATURES[-2::-1]))
        self.up = nn.ModuleList(nn.ConvTranspose3d(a, b, 2, 2, bias=False) for a, b in pairs)
        self.join = nn.ModuleList(Twice(2 * b, b, 1) for _, b in pairs)
        self.head = nn.Conv3d(FEATURES[0], 2, 1)

    def forward(self, x):
        skips = []
        for stage in self.down:
            x = stage(x)
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, skips[-2::-1]):
            x = join(torch.cat([up(x), skip], 1))
        return self.head(x)


def dice_and_cross_entropy(logits, label):
    """MONAI's DiceCELoss(softmax=True, to_onehot_y=True) of two classes."""
    logits = logits.float()
    target = nn.functional.one_hot(label[:, 0], 2).movedim(-1, 1).float()
    axes = (2, 3, 4)
    probability = logits.softmax(1)
    shared, both = (probability * target).sum(axes), (probability + target).sum(axes)
    dice = 1 - (2 * shared + 1e-5) / (both + 1e-5)
    return dice.mean() + nn.functional.cross_entropy(logits, label[:, 0])


try:
    from monai.networks.nets import DynUNet

    strides = [1, 2, 2, 2, 2]
    model = DynUNet(3, 1, 2, kernel_size=[3] * 5, strides=strides, upsample_kernel_size=strides[1:], filters=FEATURES, norm_name="INSTANCE")
    name = "MONAI DynUNet"
except ImportError:
    model, name = UNet(), "a U-Net like it"

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
# As `plimsoll`'s f32: products are not rounded to TF32.
torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
layout = torch.channels_last_3d if args.channels_last else torch.contiguous_format
model = model.cuda().to(memory_format=layout)
patch = [args.size] * 3
image = torch.randn(args.batch, 1, *patch, device="cuda").to(memory_format=layout)
label = (torch.rand(args.batch, 1, *patch, device="cuda") > 0.7).long()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
step_model = torch.compile(model) if args.compile else model
if args.forward:
    model.eval()


def step():
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.bf16), torch.inference_mode(args.forward):
        logits = step_model(image)
    if args.forward:
        return
    loss = dice_and_cross_entropy(logits, label)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


seconds = []
for _ in range(3 + args.steps):
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    seconds.append(time.perf_counter() - start)
free, total = torch.cuda.mem_get_info()
print(
    json.dumps(
        {
            "net": name,
            "size": args.size,
            "batch": args.batch,
            "precision": "bf16" if args.bf16 else "f32",
            "layout": "channels last" if args.channels_last else "contiguous",
            "how": "compiled" if args.compile else "eager",
            "what": "forward" if args.forward else "step",
            "seconds_per_step": statistics.median(seconds[3:]),
            "peak_bytes": torch.cuda.max_memory_allocated(),
            "used_bytes": total - free,
            "torch": torch.__version__,
            "card": torch.cuda.get_device_name(),
        }
    )
)
