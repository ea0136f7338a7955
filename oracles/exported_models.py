"""Small runs of this program, and what nnU-Net and ONNX Runtime make of their exports.

    python oracles/exported_models.py PATH/TO/plimsoll        writes oracles/exported/ (committed)

Needs nnunetv2 2.8.1, torch, onnx 1.23, onnxruntime 1.32. The program trains each run for a few seconds and exports it; the other
programs read the exports, on the CPU. A run is a folder:

    NET/run/fold_0/{specification.json, checkpoint_final.safetensors}     what it needs to predict
    NET/expected/CASE.nii                                                 labels by nnU-Net, with sums in single precision
    images/CASE_0000.nii, CASE_0001.nii                                   images of the spacing of training, without a border of zeros
    onnx.json                                                             logits by ONNX Runtime, and a checksum of what it read

`onnx.json` has, of two samples of a window whose values are sin(0.37 i + 0.11 (i mod 7)) of their place i, the logits at every 97th place.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
HERE = Path(__file__).parent / "exported"
SCRATCH = Path(tempfile.mkdtemp(prefix="exported-oracle-"))
for name in ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results"):
    os.environ[name] = str(SCRATCH / name)
os.environ["nnUNet_compile"] = "f"

import nibabel
import numpy as np
import onnx
import onnxruntime
import torch
from nnunetv2.inference import predict_from_raw_data
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.inference.sliding_window_prediction import compute_gaussian

torch.set_num_threads(1)
PROGRAM = sys.argv[1]
SPACING = (1.5, 1.0, 1.0)  # depth, height, width

RUNS = {
    "plain": ["--net", "plain", "--features", "4,6,8", "--patch-size", "8,16,16"],
    "resenc": ["--net", "resenc", "--features", "4,8", "--patch-size", "8,16,16"],
    "flat": ["--net", "plain", "--dimensions", "2", "--features", "4,8", "--patch-size", "1,16,16"],
    "dynunet": ["--net", "dynunet", "--features", "4,8", "--patch-size", "8,16,16"],
    "segresnet": ["--net", "segresnet", "--init-filters", "8", "--patch-size", "8,16,16"],
}
# A head that is not trained is not in the checkpoint, and nnU-Net's network has it all the same.
SETTINGS = {"plain": "[network]\ndeep_supervision = 0\n", "segresnet": "[network]\nencoder_blocks = [1, 1]\ndecoder_blocks = [1]\n"}
OF_NNUNET = ("plain", "resenc", "flat")


def phantom(seed, shape=(14, 26, 24)):
    """Two channels that are nowhere zero, and labels 0 to 2."""
    g = np.random.default_rng(seed)
    z, y, x = np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij")
    c = g.uniform(-0.25, 0.25, 3)
    far = (z - c[0]) ** 2 + (y - c[1]) ** 2 + (x - c[2]) ** 2
    labels = (far < 0.5).astype(np.uint8) + (far < 0.15)
    wave = np.cos(5 * z + g.uniform(0, 6)) * np.cos(7 * y + 3 * x + g.uniform(0, 6))
    first = np.array([40, 120, 210])[labels] + 15 * wave + g.normal(0, 9, shape)
    second = np.array([300, 180, 260])[labels] + 25 * wave + g.normal(0, 9, shape)
    return [np.maximum(np.round(i), 1).astype(np.int16) for i in (first, second)], labels


def affine(turned):
    d, h, w = SPACING
    straight = np.diag([w, h, d, 1.0])
    straight[:3, 3] = (-20.5, 11.25, 7)
    # Stored from the left and from behind, with exchanged axes.
    return straight @ np.array([[0, -1, 0, 23], [-1, 0, 0, 25], [0, 0, 1, 0], [0, 0, 0, 1.0]]) if turned else straight


def save(path, array, turned):
    array = array.transpose(2, 1, 0)
    if turned:
        # Stored i runs along -y, j along -x.
        array = array[::-1, ::-1].transpose(1, 0, 2)
    nibabel.save(nibabel.Nifti1Image(np.ascontiguousarray(array), affine(turned)), path)


def dataset(folder):
    for name in ("imagesTr", "labelsTr", "imagesTs"):
        (folder / name).mkdir(parents=True)
    for n in range(5):
        images, labels = phantom(n)
        for channel, image in enumerate(images):
            save(folder / f"imagesTr/case{n}_000{channel}.nii", image, False)
        save(folder / f"labelsTr/case{n}.nii", labels, False)
    for name, seed, turned in (("straight", 90, False), ("turned", 91, True)):
        for channel, image in enumerate(phantom(seed)[0]):
            save(folder / f"imagesTs/{name}_000{channel}.nii", image, turned)
    description = {"channel_names": {"0": "CT", "1": "T1"}, "labels": {"background": 0, "shell": 1, "core": 2},
                   "numTraining": 5, "file_ending": ".nii", "name": "Shells"}
    (folder / "dataset.json").write_text(json.dumps(description))


def program(*arguments):
    print("plimsoll", *arguments[:2], flush=True)
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def nnunet(folder, images, output):
    """Labels with sums in single precision, and the share of voxels that are the same with sums in half precision."""
    found = []
    for single in (True, False):
        half = torch.half
        out = output if single else SCRATCH / "half" / folder.name
        out.mkdir(parents=True)
        if single:
            torch.half = torch.float32
            exact = lambda *a, **k: compute_gaussian(*a, dtype=torch.float32, **k)
            exact.cache_clear = compute_gaussian.cache_clear
            predict_from_raw_data.compute_gaussian = exact
        compute_gaussian.cache_clear()
        try:
            predictor = nnUNetPredictor(device=torch.device("cpu"), allow_tqdm=False)
            predictor.initialize_from_trained_model_folder(str(folder), None, "checkpoint_final.pth")
            predictor.predict_from_files_sequential(str(images), str(out), False, True, None)
        finally:
            torch.half, predict_from_raw_data.compute_gaussian = half, compute_gaussian
        found.append({p.name: np.asanyarray(nibabel.load(p).dataobj) for p in sorted(out.glob("*.nii"))})
    for extra in output.iterdir():
        if extra.suffix != ".nii":
            extra.unlink()
    return found


def checksum(model):
    """FNV-1a (64 bits) of nodes and tensors, as crates/plimsoll-infer/tests/exported.rs has it."""
    text = []
    for node in model.graph.node:
        text.append(f"{node.op_type}({','.join(node.input)})->{','.join(node.output)};".encode())
    for tensor in model.graph.initializer:
        text.append(f"{tensor.name}{list(tensor.dims)}".encode() + tensor.raw_data)
    value = 0xCBF29CE484222325
    for byte in b"".join(text):
        value = ((value ^ byte) * 0x100000001B3) % (1 << 64)
    return f"{value:016x}"


def onnx_logits(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shape = [2] + [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
    i = np.arange(np.prod(shape), dtype=np.float64)
    image = np.sin(0.37 * i + 0.11 * (i % 7)).astype(np.float32).reshape(shape)
    logits = session.run(None, {"image": image})[0]
    flat = logits.ravel()
    return {"shape": list(logits.shape), "largest": float(np.abs(flat).max()), "checksum": checksum(model),
            "operators": sorted({n.op_type for n in model.graph.node}), "logits": [float(f"{v:.8g}") for v in flat[::97]]}


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    data = SCRATCH / "data"
    dataset(data)
    shutil.copytree(data / "imagesTs", HERE / "images")
    graphs = {}
    for net, flags in RUNS.items():
        run, settings = SCRATCH / net, SCRATCH / f"{net}.toml"
        settings.write_text(SETTINGS.get(net, ""))
        program("train", data, "--out", run, "--fold", "0", "--ram", "512MiB", "--threads", "1", "--config", settings,
                "--epochs", "6", "--iterations", "20", "--validation-iterations", "1", "--learning-rate", "0.01", "--skip-validation",
                "--batch-size", "2", "--seed", "7", "--spacing", ",".join(map(str, SPACING[1:] if net == "flat" else SPACING)), *flags)
        (HERE / net / "run/fold_0").mkdir(parents=True)
        for file in ("specification.json", "checkpoint_final.safetensors"):
            shutil.copy(run / "fold_0" / file, HERE / net / "run/fold_0" / file)
        graph = SCRATCH / f"{net}.onnx"
        program("export", run, "--format", "onnx", "-o", graph)
        graphs[net] = onnx_logits(graph)
        print(net, graphs[net]["operators"], graphs[net]["largest"])
        if net in OF_NNUNET:
            folder = SCRATCH / f"{net}_nnunet"
            program("export", run, "--format", "nnunet", "-o", folder)
            exact, half = nnunet(folder, HERE / "images", HERE / net / "expected")
            own = SCRATCH / f"{net}_labels"
            program("predict", run, "-i", HERE / "images", "-o", own, "--mirror", "--ram", "512MiB")
            for name, labels in exact.items():
                ours = np.asanyarray(nibabel.load(own / name).dataobj)
                print(f"{net}/{name}: labels {np.unique(labels, return_counts=True)}, ours the same in {np.mean(ours == labels):.6f}, "
                      f"half = single in {np.mean(half[name] == labels):.6f}", flush=True)
    (HERE / "onnx.json").write_text(json.dumps(graphs) + "\n")


main()
