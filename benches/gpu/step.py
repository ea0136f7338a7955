"""Training steps of MONAI's DynUNet on a GPU in PyTorch: seconds and memory of each way to take them, as a line of JSON each.

    python benches/gpu/step.py --size 96 [--batch 1] [--precision f32|tf32|bf16|f16] [--channels-last] [--compile] [--no-benchmark] [--forward]
    python benches/gpu/step.py --all
    python benches/gpu/step.py --ceilings

The network, loss and optimizer equal those in `plimsoll bench step --net dynunet` and of `benches/step/pytorch_step.py`; AdamW is the fused one. bf16 and f16 are
autocast (AMP), f16 with a scaled loss; `--channels-last` is the memory format channels_last_3d; `--no-benchmark` leaves cuDNN's choice of
algorithms to its heuristics; `--compile` compiles the network with its loss. `--all` takes 128³ × 2 and 96³ × 1, channels last and contiguous, eager with
`cudnn.benchmark` and compiled, in bf16, then in tf32 and f16: what there is no time for is left out. `--ceilings` measures a product of
matrices and a copy instead: the most that any kernel can reach. Where MONAI is not installed, a U-Net of the
same convolutions and norms stands in, and the line says so. `used` is what the process holds of the card, its context included, as the
driver counts it while nobody else uses the card (of several ways in one process, kernels of the ones before stay loaded); `peak` is what the
allocator has handed out at most. `--device cpu` tries the script without a GPU.
"""

import argparse
import gc
import json
import statistics
import sys
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=96)
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--precision", choices=["f32", "tf32", "bf16", "f16"], default="f32")
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--no-benchmark", action="store_true")
parser.add_argument("--forward", action="store_true")
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--all", action="store_true")
parser.add_argument("--ceilings", action="store_true")
parser.add_argument("--device", default="cuda")
args = parser.parse_args()

FEATURES = [32, 64, 128, 256, 320]
IS_CUDA = args.device.startswith("cuda")


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


def network():
    try:
        from monai.networks.nets import DynUNet
    except ImportError:
        return UNet(), "a U-Net like it"
    strides = [1, 2, 2, 2, 2]
    net = DynUNet(3, 1, 2, kernel_size=[3] * 5, strides=strides, upsample_kernel_size=strides[1:], filters=FEATURES, norm_name="INSTANCE")
    return net, "MONAI DynUNet"


def wait():
    if IS_CUDA:
        torch.cuda.synchronize()


def measure(way):
    """The seconds of a step taken in a way, and its memory."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = way["benchmark"]
    # `plimsoll`'s f32 rounds no products to TF32.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = way["precision"] == "tf32"
    half = {"bf16": torch.bfloat16, "f16": torch.float16}.get(way["precision"])
    layout = torch.channels_last_3d if way["layout"] == "channels last" else torch.contiguous_format
    model, name = network()
    model = model.to(args.device, memory_format=layout)
    patch = [way["size"]] * 3
    image = torch.randn(way["batch"], 1, *patch, device=args.device).to(memory_format=layout)
    label = (torch.rand(way["batch"], 1, *patch, device=args.device) > 0.7).long()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=IS_CUDA)
    scaler = torch.amp.GradScaler(args.device, enabled=way["precision"] == "f16")
    compiled = torch.compile if way["how"] == "compiled" else lambda function: function
    run = compiled(model)
    loss_of = compiled(lambda image, label: dice_and_cross_entropy(model(image), label))
    if args.forward:
        model.eval()

    def step():
        autocast = torch.autocast(args.device.split(":")[0], dtype=half or torch.bfloat16, enabled=half is not None)
        if args.forward:
            with autocast, torch.inference_mode():
                run(image)
            return
        with autocast:
            loss = loss_of(image, label)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    if IS_CUDA:
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(3 + args.steps):
        wait()
        start = time.perf_counter()
        step()
        wait()
        seconds.append(time.perf_counter() - start)
    found = {"net": name, "seconds_per_step": statistics.median(seconds[3:])}
    if IS_CUDA:
        free, total = torch.cuda.mem_get_info()
        found |= {"peak_bytes": torch.cuda.max_memory_allocated(), "used_bytes": total - free, "card": torch.cuda.get_device_name()}
    return found


def way(size, batch, precision, layout, how="eager", benchmark=True):
    return {"size": size, "batch": batch, "precision": precision, "layout": layout, "how": how, "benchmark": benchmark}


def all_ways():
    """What comes first is what is compared with; compiling takes longest."""
    for precision in ["bf16", "tf32", "f16"]:
        for how in ["eager", "compiled"]:
            for size, batch in [(128, 2), (96, 1)]:
                for layout in ["channels last", "contiguous"]:
                    yield way(size, batch, precision, layout, how)


def seconds_of(work, times=10):
    """The least time of some work."""
    found = []
    for _ in range(3 + times):
        wait()
        start = time.perf_counter()
        work()
        wait()
        found.append(time.perf_counter() - start)
    return min(found[3:])


def ceilings():
    """Operations per second of products of matrices, and bytes per second of a copy, which reads and writes each."""
    found, side = {"torch": torch.__version__}, 8192 if IS_CUDA else 512
    torch.backends.cuda.matmul.allow_tf32 = False
    for name, dtype in [("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32)]:
        a, b = (torch.randn(side, side, device=args.device).to(dtype) for _ in range(2))
        found[f"{name}_flops"] = 2 * side**3 / seconds_of(lambda: a @ b)
    torch.backends.cuda.matmul.allow_tf32 = True
    a, b = (torch.randn(side, side, device=args.device) for _ in range(2))
    found["tf32_flops"] = 2 * side**3 / seconds_of(lambda: a @ b)
    found["copy_bytes"] = 2 * a.nbytes / seconds_of(lambda: b.copy_(a))
    return found


def asked():
    layout = "channels last" if args.channels_last else "contiguous"
    yield way(args.size, args.batch, args.precision, layout, "compiled" if args.compile else "eager", not args.no_benchmark)


if args.ceilings:
    print(json.dumps(ceilings()))
    sys.exit()
failures = 0
for each in all_ways() if args.all else asked():
    # Memory of the way before is given back, but for what the driver has loaded.
    gc.collect()
    if IS_CUDA:
        torch.cuda.empty_cache()
    try:
        found = measure(each)
    except (RuntimeError, ImportError) as problem:
        failures += 1
        found = {"error": str(problem).splitlines()[0]}
    what = {"what": "forward" if args.forward else "step", "torch": torch.__version__}
    print(json.dumps(each | what | found), flush=True)
# A way that a card has no memory for is no failure of the others.
sys.exit(1 if failures and not args.all else 0)
