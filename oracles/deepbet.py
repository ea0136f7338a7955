"""Small networks of deepbet's kind, and what the package's own code computes with them.

    pip download --no-deps deepbet==1.0.2 && unzip -q deepbet-1.0.2-py3-none-any.whl -d deepbet
    python oracles/deepbet.py deepbet        writes oracles/deepbet/*

Needs torch, numpy, nibabel, pandas, tqdm, connected-components-3d and fill_voids. The package is run as it is but for its files of weights and the
extents of its two networks (`small_shape` and `shape` of `run_model`). deepbet publishes its networks as traced programs and not as code: `LinkNet3d`
below is written from the modules and operations that these programs name, and `python oracles/deepbet.py deepbet --check` compares both on the
trained weights.

The heads of both networks are fitted to mark a bright ellipsoid, so that masks and boxes are not noise. `expected.json` has the
image as NIfTI stores it, the box that the first network leads to, the labels, and how near to one half the nearest probability is.
`logits.json` has logits of the second network in f64.
"""

import io
import json
import sys
from contextlib import redirect_stderr
from pathlib import Path

import nibabel
import numpy as np
import torch
from torch import nn

sys.path.insert(0, sys.argv[1])
from deepbet import BrainExtraction

OUT = Path(__file__).parent / "deepbet"
FEATURES, COARSE, FINE = 4, (64, 64, 64), (96, 96, 96)
SHAPE = (70, 58, 74)


def norm(features):
    return nn.InstanceNorm3d(features)


class Block(nn.Module):
    def __init__(self, inputs, features):
        super().__init__()
        stride = 1 if inputs == features else 2
        self.double_conv = nn.Sequential(
            nn.Conv3d(inputs, features, 3, stride, 1, bias=False), norm(features), nn.ReLU(inplace=True),
            nn.Conv3d(features, features, 3, 1, 1, bias=False), norm(features),
        )
        self.downsample = None
        if stride == 2:
            self.downsample = nn.Sequential(nn.Conv3d(inputs, features, 1, 2, bias=False), norm(features))
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        short = x if self.downsample is None else self.downsample(x)
        y = self.double_conv(x)
        y += short
        return self.act(y)


class Down(nn.Module):
    def __init__(self, inputs, features):
        super().__init__()
        self.block1, self.block2 = Block(inputs, features), Block(features, features)

    def forward(self, x):
        return self.block2(self.block1(x))


class Up(nn.Module):
    def __init__(self, inputs, features, stride):
        super().__init__()
        narrow = inputs // 4
        relu = lambda: nn.ReLU(inplace=True)
        up = nn.ConvTranspose3d(narrow, narrow, 3, stride, 1, output_padding=stride - 1, bias=False)
        self.conv1 = nn.Sequential(nn.Conv3d(inputs, narrow, 1, bias=False), norm(narrow), relu())
        self.tp_conv = nn.Sequential(up, norm(narrow), relu())
        self.conv2 = nn.Sequential(nn.Conv3d(narrow, features, 1, bias=False), norm(features), relu())

    def forward(self, x):
        return self.conv2(self.tp_conv(self.conv1(x)))


class LinkNet3d(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.init = nn.Sequential(nn.Conv3d(1, f, 7, 2, 3, bias=False), norm(f), nn.ReLU(inplace=True), nn.MaxPool3d(3, 2, 1))
        self.down0, self.down1, self.down2, self.down3 = Down(f, f), Down(f, 2 * f), Down(2 * f, 4 * f), Down(4 * f, 8 * f)
        self.up0, self.up1, self.up2, self.up3 = Up(8 * f, 4 * f, 2), Up(4 * f, 2 * f, 2), Up(2 * f, f, 2), Up(f, f, 1)
        self.tp_conv1 = nn.Sequential(nn.ConvTranspose3d(f, f // 2, 3, 2, 1, output_padding=1), norm(f // 2), nn.ReLU(inplace=True))
        self.conv = nn.Sequential(nn.Conv3d(f // 2, f // 2, 3, 1, 1), norm(f // 2), nn.ReLU(inplace=True))
        self.tp_conv2 = nn.ConvTranspose3d(f // 2, 2, 2, 2)

    def logits(self, x):
        x0 = self.init(x)
        x1 = self.down0(x0)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        y = self.up0(self.down3(x3)) + x3
        y = self.up1(y) + x2
        y = self.up2(y) + x1
        y = self.up3(y) + x0
        return self.tp_conv2(self.conv(self.tp_conv1(y)))

    def forward(self, x):
        return torch.softmax(self.logits(x), 1)


def check():
    """Compares the class with the published programs."""
    for name in ["bbox_model", "model"]:
        traced = torch.jit.load(f"{sys.argv[1]}/data/models/{name}.pt", map_location="cpu")
        net = LinkNet3d(16)
        net.load_state_dict(traced.state_dict())
        x = torch.randn(1, 1, 64, 64, 64)
        with torch.no_grad():
            print(name, (net.eval()(x) - traced(x)).abs().max().item())


def head(shape, seed):
    """An image with an ellipsoid that is brighter than its surroundings, and the mask of it."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij"))
    centre = np.array([0.1, -0.05, 0.15]).reshape(3, 1, 1, 1) + rng.uniform(-0.1, 0.1, (3, 1, 1, 1))
    brain = (((grid - centre) / np.array([0.55, 0.6, 0.5]).reshape(3, 1, 1, 1)) ** 2).sum(0) < 1
    skull = ((grid / np.array([0.85, 0.9, 0.85]).reshape(3, 1, 1, 1)) ** 2).sum(0) < 1
    image = 40 * skull + 60 * brain + rng.normal(0, 6, shape)
    image += 90 * (np.abs(grid[0] - 0.1) < 0.05) * (np.abs(grid[1]) < 0.05) * brain
    return np.clip(image, 0, None).round().astype(np.int16), brain


def normalised(x):
    low, high = x.quantile(0.005), x.quantile(0.995)
    x = ((x - low) / (high - low)).clamp(0, 1)
    return 0.226 * (x - x.mean()) / x.std() + 0.449


def features(net, image):
    """What the last transposed convolution reads, at the extent of the image."""
    kept = []
    hook = net.conv.register_forward_hook(lambda module, inputs, output: kept.append(output.detach()))
    with torch.no_grad():
        net(normalised(torch.from_numpy(image).float())[None, None])
    hook.remove()
    return nn.functional.interpolate(kept[0], scale_factor=2)[0].flatten(1)


def fitted(seeds):
    """A network of random weights whose head is fitted to the mask of an image by least squares; the best of some."""
    image, brain = head(COARSE, seeds[0])
    target = torch.from_numpy(brain).flatten()
    best = (0, None)
    for seed in seeds:
        torch.manual_seed(seed)
        net = LinkNet3d(FEATURES).eval()
        x = features(net, image)
        x1 = torch.cat([x, torch.ones(1, x.shape[1])]).double()
        w = torch.linalg.lstsq(x1.T, target.double() * 2 - 1).solution
        score = (w @ x1).float()
        threshold = score.kthvalue(int((~target).sum())).values
        mark = score > threshold
        dice = (2 * (mark & target).sum() / (mark.sum() + target.sum())).item()
        if dice > best[0]:
            with torch.no_grad():
                net.tp_conv2.weight[:, 1] = 2 * w[:-1].float().reshape(-1, 1, 1, 1)
                net.tp_conv2.weight[:, 1] *= 1 + 0.1 * torch.randn(FEATURES // 2, 2, 2, 2)
                net.tp_conv2.weight[:, 0] = -net.tp_conv2.weight[:, 1] + 0.05 * torch.randn(FEATURES // 2, 2, 2, 2)
                net.tp_conv2.bias.copy_(2 * (w[-1].float() - threshold) * torch.tensor([-1.0, 1.0]))
            best = (dice, net)
    print(f"Dice {best[0]:.3f}")
    return best[1]


def save(net, name, extent):
    with redirect_stderr(io.StringIO()), torch.no_grad():
        torch.jit.trace(net, torch.zeros(1, 1, *extent), check_trace=False).save(str(OUT / f"models/{name}.pt"))


class Small(BrainExtraction):
    """deepbet with its networks at smaller extents, which keeps the probabilities of the second."""

    def run_model(self, x):
        model = self.model
        self.model = Kept(model)
        mask = super().run_model(x, COARSE, FINE)
        self.probabilities, self.model = self.model.kept, model
        return mask


class Kept(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        self.kept = self.model(x)
        return self.kept


def runs(mask):
    """Where the labels of voxels, in the order of storage, change: begin and end of each run of ones."""
    flat = np.concatenate([[0], mask.astype(np.int8).ravel(), [0]])
    return np.flatnonzero(np.diff(flat)).tolist()


def main():
    (OUT / "models").mkdir(parents=True, exist_ok=True)
    save(fitted(range(1, 9)), "bbox_model", COARSE)
    fine = fitted(range(9, 17))
    save(fine, "model", FINE)
    # Voxels that a test computes for itself.
    x = ((torch.arange(64 * 64 * 96).double() * 7919 + 31) % 211 / 211).reshape(1, 1, 64, 64, 96)
    with torch.no_grad():
        logits = fine.double().logits(x).flatten()
    step = 997
    (OUT / "logits.json").write_text(
        json.dumps({
            "window": [64, 64, 96], "step": step,
            "logits": [float(f"{v:.9g}") for v in logits[::step]],
        }, separators=(",", ":"))
    )
    image, _ = head(SHAPE, 7)
    affine = np.diag([1.0, 1.25, 0.75, 1.0])
    # A state dict, whose pickle has no modules.
    torch.save({"init.0.weight": torch.zeros(4, 1, 7, 7, 7)}, OUT / "state_dict.pt")
    small = Small(no_gpu=True, model_path=str(OUT / "models/model.pt"), bbox_model_path=str(OUT / "models/bbox_model.pt"))
    _, mask, _ = small.run(nibabel.Nifti1Image(image, affine))
    labels = np.asarray(mask.dataobj)
    box = [[axis.start, axis.stop] for axis in small.bbox]
    margin = float((small.probabilities[0, 1] - 0.5).abs().min())
    print("box", box, "voxels", int(labels.sum()), "nearest to one half", margin)
    # NIfTI stores the first axis fastest.
    (OUT / "expected.json").write_text(
        json.dumps({
            "shape": SHAPE[::-1], "spacing": [0.75, 1.25, 1.0], "box": box, "margin": margin,
            "brain": runs(labels.transpose(2, 1, 0)),
            "image": image.transpose(2, 1, 0).ravel().tolist(),
        }, separators=(",", ":"))
    )


check() if "--check" in sys.argv else main()
