"""Labels that MONAI gives images with small models, beside the models as its users have them.

    python oracles/monai_models.py          writes oracles/monai/*, or those that are named

Needs torch, monai >= 1.5 and nibabel. Each folder is a case: images, a model.toml beside model.pt, or a bundle, and the labels that MONAI's
own transforms and SlidingWindowInferer make. The networks are trained for some steps, so that few voxels are as likely one class as another.
"""

import json
import shutil
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from monai.bundle import ConfigParser
from monai.data import decollate_batch
from monai.inferers import SlidingWindowInferer
from monai.networks.nets import UNETR, AttentionUnet, DynUNet, SegResNet, SwinUNETR, UNet
from monai.transforms import (
    Activationsd, AsDiscreted, Compose, EnsureChannelFirstd, EnsureTyped, Invertd, LoadImaged, NormalizeIntensityd,
    Orientationd, ScaleIntensityRanged, Spacingd,
)

torch.set_num_threads(1)
OUT = Path(__file__).parent / "monai"


def rotation(degrees, axis):
    a = np.deg2rad(degrees)
    r = np.eye(3)
    i, j = [k for k in range(3) if k != axis]
    r[i, i] = r[j, j] = np.cos(a)
    r[i, j], r[j, i] = -np.sin(a), np.sin(a)
    return r


def affine(spacing, order, flips, degrees):
    """Axes of the file in the order of the world's axes `order`, some backwards, tilted."""
    m = np.zeros((3, 3))
    for stored, world in enumerate(order):
        m[world, stored] = (-1 if flips[stored] else 1) * spacing[stored]
    m = rotation(degrees, 2) @ rotation(degrees / 2, 0) @ m
    full = np.eye(4)
    full[:3, :3] = m
    full[:3, 3] = [-31.5, 12.25, 80.0]
    return full


def image(shape, seed, channels):
    """Balls of two intensities in a body, with a little noise; where there is no body it is 0."""
    random = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij"))
    body = (grid**2).sum(0) < 1.3
    values = np.where(body, 60.0, 0.0)
    for value, count in [(140.0, 4), (220.0, 4)]:
        for _ in range(count):
            centre = random.uniform(-0.6, 0.6, 3)
            values[((grid - centre[:, None, None, None]) ** 2).sum(0) < random.uniform(0.15, 0.35) ** 2] = value
    found = []
    for channel in range(channels):
        own = values * (1 + channel) + random.normal(0, 6, shape) * body
        found.append(np.where(body, np.round(own / 2) * 2, 0).astype(np.int16))
    return found


def save(folder, name, channels, matrix):
    folder.mkdir(parents=True, exist_ok=True)
    for number, values in enumerate(channels):
        made = nib.Nifti1Image(values, matrix)
        made.header.set_xyzt_units("mm")
        nib.save(made, folder / f"{name}_{number:04d}.nii.gz")


def train(net, data, outputs, roi, levels, sigmoid):
    """Some steps on windows whose labels follow from the first channel."""
    torch.manual_seed(3)
    random = np.random.default_rng(5)
    net.train()
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)
    extent = data.shape[1:]
    padded = torch.nn.functional.pad(data, [n for k in (2, 1, 0) for n in (0, max(roi[k] - extent[k], 0))])
    for _ in range(60):
        at = [random.integers(0, padded.shape[1 + k] - roi[k] + 1) for k in range(3)]
        window = padded[:, at[0] : at[0] + roi[0], at[1] : at[1] + roi[1], at[2] : at[2] + roi[2]][None]
        label = sum((window[:, 0] > level).long() for level in levels)
        logits = net(window)
        if sigmoid:
            target = torch.stack([(label > k).float() for k in range(outputs)], 1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target)
        else:
            loss = torch.nn.functional.cross_entropy(logits, label.clamp(max=outputs - 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    return loss.item()


def thin(net, seed):
    """Weights that take little in a file: of each large one a line of random numbers, of which all others are overlapping views. The smallest
    SwinUNETR has four million of them. They stay as they are while the small ones are trained."""
    random = np.random.default_rng(seed)
    for p in net.parameters():
        if p.ndim < 2 or p.numel() < 2000:
            continue
        strides = (1, 2, 5, 7, 11)[: p.ndim]
        span = 1 + sum((extent - 1) * stride for extent, stride in zip(p.shape, strides))
        line = random.normal(0, (p.numel() // p.shape[0]) ** -0.5, span)
        p.data = torch.tensor(line, dtype=torch.float32).as_strided(p.shape, strides)
        p.requires_grad_(False)
    return net


def run(net, inferer, before, after, files):
    data = before({"image": [str(f) for f in files] if len(files) > 1 else str(files[0])})
    with torch.no_grad():
        data["pred"] = inferer(data["image"][None], net)[0]
        data["pred"].applied_operations = data["image"].applied_operations
        data["pred"].affine = data["image"].affine
    return after(data)["pred"]


def case(name, net, shape, matrix, channels, spacing, intensity, window, activation, labels, toml, levels, seed):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    save(folder / "images", "a", image(shape, seed, channels), matrix)
    files = sorted((folder / "images").glob("*.nii.gz"))
    steps = [LoadImaged("image"), EnsureChannelFirstd("image"), Orientationd("image", "RAS")]
    if spacing:
        steps.append(Spacingd("image", pixdim=spacing, mode="bilinear"))
    steps += [intensity, EnsureTyped("image")]
    before = Compose(steps)
    sigmoid = activation == "sigmoid"
    after = Compose([
        Activationsd("pred", softmax=not sigmoid, sigmoid=sigmoid),
        Invertd("pred", transform=before, orig_keys="image", nearest_interp=False, to_tensor=True),
        AsDiscreted("pred", argmax=not sigmoid, threshold=0.5 if sigmoid else None),
    ])
    data = before({"image": [str(f) for f in files] if channels > 1 else str(files[0])})["image"].as_tensor()
    # Where a voxel falls on one of the image, MONAI's rounding leaves it a hair off 0, and `nonzero` then counts it: that is chance.
    raw = Compose([step for step in steps if step is not intensity])({"image": [str(f) for f in files]})["image"]
    hairs = ((raw != 0) & (raw.abs() < 1e-3)).sum()
    assert not (getattr(intensity, "normalizer", None) and intensity.normalizer.nonzero and hairs), int(hairs)
    loss = train(net, data, len(labels), window["roi_size"], levels, sigmoid)
    inferer = SlidingWindowInferer(sw_batch_size=1, **window)
    pred = run(net, inferer, before, after, files).as_tensor().numpy()
    if sigmoid:
        # A later output over an earlier one.
        found = np.zeros(pred.shape[1:], np.uint8)
        for k in range(len(pred)):
            found[pred[k] > 0.5] = k + 1
    else:
        found = pred[0].astype(np.uint8)
    assert found.shape == shape
    nib.save(nib.Nifti1Image(found, matrix), folder / "labels.nii.gz")
    torch.save(net.state_dict(), folder / "model.pt")
    (folder / "model.toml").write_text(toml)
    counts = np.bincount(found.ravel(), minlength=len(labels))
    print(name, "loss", round(loss, 4), "labels", counts, "grid", tuple(data.shape))


def table(pairs):
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in pairs.items())


def toml(network, images, intensity, window, output):
    parts = {"network": network, "images": images, "intensity": intensity, "window": window, "output": output}
    return 'weights = "model.pt"\n' + "".join(f"\n[{name}]\n{table(pairs)}" for name, pairs in parts.items())


def convolutional():
    torch.manual_seed(1)
    # A UNet of residual units with batch normalisation, as MONAI's spleen model; axes exchanged, tilted, coarser on one axis.
    arguments = dict(
        spatial_dims=3, in_channels=1, out_channels=3, channels=[4, 8, 16], strides=[2, 2], num_res_units=2, norm="batch",
    )
    scale = dict(a_min=-20.0, a_max=300.0, b_min=0.0, b_max=1.0, clip=True)
    window = dict(roi_size=[24, 20, 16], overlap=0.25, mode="gaussian")
    labels = ["background", "ball", "core"]
    case(
        "unet", UNet(**arguments), (26, 40, 34), affine((1.7, 0.9, 1.1), (2, 0, 1), (False, True, True), 9.0), 1,
        [1.2, 1.3, 1.5], ScaleIntensityRanged("image", **scale), window, "softmax", labels,
        toml(
            dict(name="UNet") | arguments, dict(channels=["CT"], orientation="RAS", spacing=[1.2, 1.3, 1.5]),
            dict(name="ScaleIntensityRange") | scale, window, dict(activation="softmax", labels=labels),
        ),
        [(100 + 20) / 320, (180 + 20) / 320], 11,
    )
    # Without residual units, PReLUs and instance normalisation as they are by default; an image that is smaller than a window.
    arguments = dict(
        spatial_dims=3, in_channels=1, out_channels=2, channels=[4, 6, 8], strides=[2, [1, 2, 2]], kernel_size=3, up_kernel_size=3,
    )
    window = dict(roi_size=[16, 32, 24], overlap=[0.5, 0.6, 0.1], mode="constant")
    normalise = dict(nonzero=False, channel_wise=False)
    case(
        "unet_plain", UNet(**arguments), (30, 28, 18), affine((1.0, 1.0, 2.0), (0, 1, 2), (True, False, False), 0.0), 1,
        [1.0, 1.5, 1.6], NormalizeIntensityd("image", **normalise), window, "softmax", labels[:2],
        toml(
            dict(name="UNet") | arguments, dict(channels=["MR"], orientation="RAS", spacing=[1.0, 1.5, 1.6]),
            dict(name="NormalizeIntensity") | normalise, window, dict(activation="softmax", labels=labels[:2]),
        ),
        [0.9], 12,
    )
    # DynUNet over two channels, normalised each by itself where they are not 0.
    arguments = dict(
        spatial_dims=3, in_channels=2, out_channels=3, kernel_size=[3, 3, [3, 3, 1]], strides=[1, 2, [2, 2, 1]],
        upsample_kernel_size=[2, [2, 2, 1]], filters=[4, 8, 12], norm_name=["INSTANCE", {"affine": True}], deep_supervision=False,
    )
    window = dict(roi_size=[20, 16, 12], overlap=0.5, mode="gaussian", sigma_scale=0.25)
    normalise = dict(nonzero=True, channel_wise=True)
    case(
        "dynunet", DynUNet(**arguments), (24, 30, 28), affine((2.0, 1.2, 0.8), (1, 2, 0), (False, False, True), 4.0), 2,
        [1.13, 1.87, 1.37], NormalizeIntensityd("image", **normalise), window, "softmax", labels,
        toml(
            dict(name="DynUNet") | arguments | dict(norm_name="CUT"),
            dict(channels=["T1", "T2"], orientation="RAS", spacing=[1.13, 1.87, 1.37]),
            dict(name="NormalizeIntensity") | normalise, window, dict(activation="softmax", labels=labels),
        ).replace('"CUT"', '["INSTANCE", { affine = true }]'),
        [0.8, 2.0], 13,
    )
    # SegResNet with outputs that overlap, at the spacing of the image.
    arguments = dict(
        spatial_dims=3, init_filters=8, in_channels=1, out_channels=2, blocks_down=[1, 1], blocks_up=[1], upsample_mode="deconv",
    )
    window = dict(roi_size=[16, 16, 16], overlap=0.25, mode="gaussian")
    scale = dict(a_min=0.0, a_max=200.0)
    case(
        "segresnet", SegResNet(**(arguments | dict(upsample_mode="deconv"))), (20, 26, 33),
        affine((1.5, 1.0, 1.0), (0, 1, 2), (True, True, False), 0.0), 1, None, ScaleIntensityRanged("image", **scale), window,
        "sigmoid", labels[1:],
        toml(
            dict(name="SegResNet") | arguments, dict(channels=["CT"], orientation="RAS"),
            dict(name="ScaleIntensityRange") | scale, window, dict(activation="sigmoid", labels=labels[1:]),
        ),
        [0.5, 0.9], 14,
    )


def swinunetr():
    """SwinUNETR, whose windows of attention are shifted in its first stage; axes exchanged and tilted."""
    torch.manual_seed(2)
    arguments = dict(
        in_channels=1, out_channels=3, feature_size=12, depths=[2, 1, 1, 1], num_heads=[3, 6, 12, 24], window_size=3,
    )
    window = dict(roi_size=[64, 32, 32], overlap=0.25, mode="gaussian")
    scale = dict(a_min=-20.0, a_max=300.0, b_min=0.0, b_max=1.0, clip=True)
    labels = ["background", "ball", "core"]
    case(
        "swinunetr", thin(SwinUNETR(**arguments), 31), (31, 46, 40), affine((1.7, 1.1, 1.2), (2, 0, 1), (False, True, True), 7.0), 1,
        [1.3, 1.4, 1.5], ScaleIntensityRanged("image", **scale), window, "softmax", labels,
        toml(
            dict(name="SwinUNETR") | arguments, dict(channels=["CT"], orientation="RAS", spacing=[1.3, 1.4, 1.5]),
            dict(name="ScaleIntensityRange") | scale, window, dict(activation="softmax", labels=labels),
        ).replace('weights = "model.pt"\n', 'weights = "model.pt"\nmonai_version = "1.6.1"\n'),
        [(100 + 20) / 320, (180 + 20) / 320], 17,
    )


def attention():
    """AttentionUnet with the running statistics of its training, and UNETR with windows of the size that it has positions for."""
    scale = dict(a_min=-20.0, a_max=300.0, b_min=0.0, b_max=1.0, clip=True)
    labels = ["background", "ball", "core"]
    networks = {
        "attentionunet": (
            AttentionUnet, dict(spatial_dims=3, in_channels=1, out_channels=3, channels=[4, 6, 8], strides=[2, [1, 2, 2]]), [16, 20, 24],
        ),
        "unetr": (
            UNETR, dict(in_channels=1, out_channels=3, img_size=[16, 32, 16], feature_size=3, hidden_size=12, mlp_dim=20, num_heads=2),
            [16, 32, 16],
        ),
    }
    for seed, (name, (net, arguments, roi)) in enumerate(networks.items()):
        torch.manual_seed(3 + seed)
        window = dict(roi_size=roi, overlap=0.25, mode="gaussian")
        case(
            name, net(**arguments), (26, 40, 34), affine((1.7, 0.9, 1.1), (2, 0, 1), (False, True, True), 9.0), 1,
            [1.2, 1.3, 1.5], ScaleIntensityRanged("image", **scale), window, "softmax", labels,
            toml(
                dict(name=net.__name__) | arguments, dict(channels=["CT"], orientation="RAS", spacing=[1.2, 1.3, 1.5]),
                dict(name="ScaleIntensityRange") | scale, window, dict(activation="softmax", labels=labels),
            ),
            [(100 + 20) / 320, (180 + 20) / 320], 21 + seed,
        )


def unet_bundle():
    network = {
        "_target_": "UNet", "spatial_dims": 3, "in_channels": 1, "out_channels": 2, "channels": [4, 8, 16],
        "strides": [2, 2], "num_res_units": 1, "norm": "batch",
    }
    bundle("bundle", network, (36, 32, 16), [24, 24, 12])


def swinunetr_bundle():
    """As the bundles of SwinUNETR in the model zoo have it, with the blocks of its second version."""
    torch.manual_seed(4)
    network = {
        "_target_": "SwinUNETR", "spatial_dims": 3, "in_channels": 1, "out_channels": 2, "feature_size": 12, "depths": [1, 1, 1, 1],
        "num_heads": [1, 2, 4, 8], "window_size": 3, "use_v2": True, "use_checkpoint": True,
    }
    bundle("bundle_swinunetr", network, (40, 44, 24), [32, 64, 32])


def bundle(name, network, shape, roi):
    """A bundle in the manner of MONAI's model zoo, run as its own parser reads it."""
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    matrix = affine((0.9, 1.0, 2.4), (0, 1, 2), (True, True, False), 0.0)
    save(folder / "images", "a", image(shape, 21, 1), matrix)
    image_file = folder / "images/a_0000.nii.gz"
    (folder / "configs").mkdir()
    (folder / "models").mkdir()
    inference = {
        "imports": ["$import glob", "$import os"],
        "bundle_root": "/workspace/balls",
        "image_key": "image",
        "output_dir": "$@bundle_root + '/eval'",
        "dataset_dir": "/workspace/data",
        "datalist": "$list(sorted(glob.glob(@dataset_dir + '/imagesTs/*.nii.gz')))",
        "device": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "spatial_size": roi,
        "network_def": network,
        "network": "$@network_def.to(@device)",
        "preprocessing": {
            "_target_": "Compose",
            "transforms": [
                {"_target_": "LoadImaged", "keys": "@image_key"},
                {"_target_": "EnsureChannelFirstd", "keys": "@image_key"},
                {"_target_": "Orientationd", "keys": "@image_key", "axcodes": "RAS"},
                {"_target_": "Spacingd", "keys": "@image_key", "pixdim": [1.5, 1.5, 2.0], "mode": "bilinear"},
                {
                    "_target_": "ScaleIntensityRanged", "keys": "@image_key", "a_min": -57, "a_max": 264, "b_min": 0, "b_max": 1,
                    "clip": True,
                },
                {"_target_": "EnsureTyped", "keys": "@image_key"},
            ],
        },
        "dataset": {
            "_target_": "Dataset", "data": "$[{@image_key: i} for i in @datalist]", "transform": "@preprocessing",
        },
        "dataloader": {"_target_": "DataLoader", "dataset": "@dataset", "batch_size": 1, "shuffle": False, "num_workers": 0},
        "inferer": {"_target_": "SlidingWindowInferer", "roi_size": "@spatial_size", "sw_batch_size": 4, "overlap": 0.5},
        "postprocessing": {
            "_target_": "Compose",
            "transforms": [
                {"_target_": "Activationsd", "keys": "pred", "softmax": True},
                {
                    "_target_": "Invertd", "keys": "pred", "transform": "@preprocessing", "orig_keys": "@image_key",
                    "nearest_interp": False, "to_tensor": True,
                },
                {"_target_": "AsDiscreted", "keys": "pred", "argmax": True},
                {"_target_": "SaveImaged", "_disabled_": True, "keys": "pred", "output_dir": "@output_dir"},
            ],
        },
        "evaluator": {"_target_": "SupervisedEvaluator", "device": "@device", "network": "@network", "inferer": "@inferer"},
        "run": ["$@evaluator.run()"],
    }
    channels = {
        "inputs": {"image": {"type": "image", "num_channels": 1, "channel_def": {"0": "image"}}},
        "outputs": {"pred": {"type": "image", "num_channels": 2, "channel_def": {"0": "background", "1": "ball"}}},
    }
    metadata = {"version": "0.1.0", "monai_version": "1.6.1", "task": "balls", "network_data_format": channels}
    (folder / "configs/inference.json").write_text(json.dumps(inference, indent=1))
    (folder / "configs/metadata.json").write_text(json.dumps(metadata, indent=1))
    parser = ConfigParser()
    parser.read_config(folder / "configs/inference.json")
    before, net = parser.get_parsed_content("preprocessing"), parser.get_parsed_content("network_def")
    if network["_target_"] == "SwinUNETR":
        thin(net, 32)
    data = before({"image": str(image_file)})["image"].as_tensor()
    loss = train(net, data, 2, inference["spatial_size"], [(100 + 57) / 321], False)
    pred = run(net, parser.get_parsed_content("inferer"), before, parser.get_parsed_content("postprocessing"), [image_file])
    found = pred.as_tensor().numpy()[0].astype(np.uint8)
    nib.save(nib.Nifti1Image(found, matrix), folder / "labels.nii.gz")
    torch.save(net.state_dict(), folder / "models/model.pt")
    print(name, "loss", round(loss, 4), "labels", np.bincount(found.ravel()), "grid", tuple(data.shape))


if __name__ == "__main__":
    makers = [convolutional, attention, unet_bundle, swinunetr, swinunetr_bundle]
    for maker in makers:
        if not sys.argv[1:] or maker.__name__ in sys.argv[1:]:
            maker()
