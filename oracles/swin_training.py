"""Reference losses and gradients of SwinUNETR, from MONAI.

    python oracles/swin_training.py small          writes oracles/data/swin_*.json (committed)
    python oracles/swin_training.py full DIR       the runs that take minutes, into DIR

Needs torch and monai >= 1.5. Batches and weights are given by formulas that the tests share; of each gradient its norm and its
products with numbers of the same formula are stored, so that nothing is large.
"""

import copy
import json
import sys
from pathlib import Path

import numpy as np
import torch
from monai.losses import DiceCELoss
from monai.networks.nets import SwinUNETR, swin_unetr
from residual_training import fill
from unet_training import noise, train

# Numbers do not depend on it, but waiting threads cost more than they gain where others use the machine.
torch.set_num_threads(1)

PRODUCTS = 4
# Small weights: larger ones push many activations over their kinks, where f32 and f64 part.
GAIN = 1.0


class Merging14(swin_unetr.PatchMergingV2):
    """What MONAI called "merging" from 0.9 to 1.4: the offsets of the sixth and seventh are those of the third and fourth."""

    def forward(self, x):
        if x.ndim == 4:
            return super().forward(x)
        _, d, h, w, _ = x.shape
        x = torch.nn.functional.pad(x, (0, 0, 0, w % 2, 0, h % 2, 0, d % 2))
        offsets = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 0), (0, 0, 1), (1, 1, 1)]
        x = torch.cat([x[:, i::2, j::2, k::2, :] for i, j, k in offsets], -1)
        return self.reduction(self.norm(x))


def network(c):
    mergings = {"merging": "merging", "mergingv2": "mergingv2", "merging-1.4": Merging14}
    return SwinUNETR(
        in_channels=c["in_channels"], out_channels=c["classes"], feature_size=c["feature_size"], depths=c["depths"],
        num_heads=c["num_heads"], window_size=c["window_size"], qkv_bias=c["qkv_bias"], mlp_ratio=c["mlp_ratio"],
        normalize=c["normalize"], patch_norm=c["patch_norm"], spatial_dims=c["dimensions"],
        downsample=mergings[c["merging"]], use_v2=c["use_v2"],
    )


def told(gradient):
    flat = gradient.double().flatten().numpy()
    return [float(np.linalg.norm(flat))] + [float(flat @ noise(7 + k, flat.size)) for k in range(PRODUCTS)]


def run(name, patch, n, steps, folder, settings, **options):
    c = dict(
        in_channels=1, classes=2, dimensions=3, feature_size=12, depths=[2] * 4, num_heads=[3, 6, 12, 24], window_size=7,
        qkv_bias=True, mlp_ratio=4.0, patch_norm=False, normalize=True, use_v2=False, merging="merging",
    ) | options
    net = network(c)
    fill(net, GAIN)
    net.train()
    extent = patch[1:] if c["dimensions"] == 2 else patch
    of_unets = dict(c, name="swinunetr", deep_supervision=0)
    loss_of = DiceCELoss(softmax=True, to_onehot_y=True)
    exact = copy.deepcopy(net).double()
    losses, norms, own = train(net, of_unets, extent, n, steps, settings, loss_of)
    exact_losses, _, gradients = train(exact, of_unets, extent, n, steps, settings, loss_of)
    off = {k: ((own[k] - g).norm() / g.norm()).item() for k, g in gradients.items()}
    loss_off = max(abs(a - b) / b for a, b in zip(losses, exact_losses))
    record = dict(
        net=dict(c, name="swinunetr", attention=True, dropout=0.0, attention_dropout=0.0, path_dropout=0.0), patch=patch,
        batch=n, optimizer=settings, loss={}, gain=GAIN, losses=losses, exact_losses=exact_losses, gradient_norms=norms,
        gradient_error=max(off.values()), gradients={k: told(g) for k, g in gradients.items()},
        state={k: list(v.shape) for k, v in net.state_dict().items()}, torch=torch.__version__,
    )
    text = json.dumps(record, indent=1).replace("\n  ", " ")
    (folder / f"swin_{name}.json").write_text(text + "\n")
    print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}; PyTorch in f32 is off PyTorch in f64 by {loss_off:.1e} in "
          f"losses, {max(off.values()):.1e} in gradients")


adamw = dict(name="adamw", lr=1e-4, weight_decay=0.01, max_norm=None)


def small():
    folder = Path(__file__).parent / "data"
    run("flat", [1, 96, 64], 2, 20, folder, adamw, dimensions=2, in_channels=3, classes=3)
    run("v2", [64, 32, 32], 1, 4, folder, adamw, use_v2=True, merging="mergingv2", patch_norm=True)
    run("old", [32, 64, 32], 1, 4, folder, adamw, merging="merging-1.4", qkv_bias=False, normalize=False, in_channels=2)


def full(folder):
    folder.mkdir(parents=True, exist_ok=True)
    run("clipped", [64, 32, 96], 1, 20, folder, adamw)
    run("cube", [64, 64, 64], 1, 20, folder, adamw)
    run("v2_cube", [64, 64, 64], 1, 5, folder, adamw, use_v2=True, merging="mergingv2")
    run("old_clipped", [64, 32, 96], 1, 5, folder, adamw, merging="merging-1.4")


if __name__ == "__main__":
    if sys.argv[1] == "full":
        full(Path(sys.argv[2]))
    else:
        small()
