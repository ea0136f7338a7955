"""Small MeshNets in TensorFlow.js's format, and the logits that PyTorch computes for them as brainchop's code does.

    python oracles/meshnets.py          writes oracles/meshnets/*

Needs torch and numpy. Topologies, names and the order of numbers are those of brainchop's models: `Conv3D` with a kernel
[depth, height, width, input, output] and then its bias, dilated, with the padding that keeps the extent; `Activation`; names that end in
`_gn` where each channel is then normalised by its mean and its variance with an epsilon of 1e-5. Images have the axes of brainchop's conformed
heads: to the left, downwards, forwards.
"""

import json
from pathlib import Path

import numpy as np
import torch

OUT = Path(__file__).parent / "meshnets"
EXTENT = (9, 12, 10)

# Features, dilations, activation, normalised.
CASES = {
    "relu": ([5, 5, 4], [1, 4, 2], "relu", False),
    "elu": ([18, 6], [2, 3], "elu", False),
    "gelu": ([7, 7, 7], [8, 2, 1], "gelu", True),
}
CLASSES = 3


def layer(kind, name, before, **config):
    inbound = [[[before, 0, 0, {}]]] if before else []
    return {"class_name": kind, "name": name, "config": {"name": name, "dtype": "float32", **config}, "inbound_nodes": inbound}


def convolution(name, before, filters, kernel, dilation, bias):
    return layer(
        "Conv3D", name, before, filters=filters, kernel_size=[kernel] * 3, strides=[1, 1, 1], padding="same",
        data_format="channels_last", dilation_rate=[dilation] * 3, activation="linear", use_bias=bias,
    )  # fmt: skip


def numbers(random, *shape):
    return random.standard_normal(shape).astype("<f4")


def write(case, features, dilations, activation, normalised):
    random = np.random.default_rng(sum(case.encode()))
    image = random.uniform(0, 1, EXTENT).astype("<f4")
    layers = [layer("InputLayer", "input", None, batch_input_shape=[None, 256, 256, 256, 1])]
    weights, tensors = [], []
    map, before, inputs = torch.from_numpy(image.astype("<f8"))[None, None], "input", 1

    def convolve(map, name, outputs, kernel, dilation, bias):
        scale = np.float32(np.sqrt(2 / (inputs * kernel**3)))
        tensors.append((f"{name}/kernel", scale * numbers(random, kernel, kernel, kernel, inputs, outputs)))
        weight = torch.from_numpy(tensors[-1][1].astype("<f8")).permute(4, 3, 0, 1, 2)
        offset = None
        if bias:
            tensors.append((f"{name}/bias", np.float32(0.1) * numbers(random, outputs)))
            offset = torch.from_numpy(tensors[-1][1].astype("<f8"))
        return torch.nn.functional.conv3d(map, weight, offset, padding=dilation * (kernel // 2), dilation=dilation)

    for number, (outputs, dilation) in enumerate(zip(features, dilations)):
        name = f"conv3d_{number}" + ("_gn" if normalised else "")
        layers.append(convolution(name, before, outputs, 3, dilation, not normalised))
        map = convolve(map, name, outputs, 3, dilation, not normalised)
        if normalised:
            map = torch.nn.functional.instance_norm(map, eps=1e-5)
        before = f"activation_{number}"
        layers.append(layer("Activation", before, name, activation=activation))
        map = getattr(torch.nn.functional, activation)(map)
        inputs = outputs
    layers.append(convolution("output", before, CLASSES, 1, 1, True))
    map = convolve(map, "output", CLASSES, 1, 1, True)

    folder = OUT / case
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in tensors:
        weights.append({"name": name, "shape": list(values.shape), "dtype": "float32"})
    (folder / "model.bin").write_bytes(b"".join(values.tobytes() for _, values in tensors))
    model = {
        "format": "layers-model",
        "generatedBy": "oracles/meshnets.py",
        "modelTopology": {"model_config": {"class_name": "Functional", "config": {"name": case, "layers": layers}}},
        "weightsManifest": [{"paths": ["model.bin"], "weights": weights}],
    }
    (folder / "model.json").write_text(json.dumps(model))
    (folder / "colormap.json").write_text(json.dumps({"labels": ["background", "white", "grey"]}))
    expected = {"extent": EXTENT, "image": image.ravel().tolist(), "logits": [float(f"{x:.7g}") for x in map.ravel()]}
    (folder / "expected.json").write_text(json.dumps(expected))


for case, settings in CASES.items():
    write(case, *settings)
