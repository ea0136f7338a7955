"""What ONNX Runtime makes of graphs that the program writes: ops and networks.

    mkdir graphs; ONNX_FOLDER=$PWD/graphs cargo test -p plimsoll-run --test onnx_graphs onnx_runtime
    python oracles/onnx_graphs.py graphs            writes oracles/onnx_graphs.json
    python oracles/onnx_graphs.py MODEL.onnx        runs one, with its weights in it or beside it

Needs onnx 1.23, onnxruntime 1.31. Each graph is checked, with its shapes inferred, and runs with two samples of a window whose values are
sin(0.37 i + 0.11 (i mod 7)) of their place i; of its logits every so many are kept, and a checksum of what was read.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime


def checksum(model):
    """FNV-1a (64 bits) of nodes and tensors, as crates/plimsoll-models/tests/onnx_graphs.rs has it."""
    text = []
    for node in model.graph.node:
        text.append(f"{node.op_type}({','.join(node.input)})->{','.join(node.output)};".encode())
    for tensor in model.graph.initializer:
        text.append(f"{tensor.name}{list(tensor.dims)}".encode() + tensor.raw_data)
    value = 0xCBF29CE484222325
    for byte in b"".join(text):
        value = ((value ^ byte) * 0x100000001B3) % (1 << 64)
    return f"{value:016x}"


def logits(path):
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(path, load_external_data=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    shape = [2] + [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
    i = np.arange(np.prod(shape), dtype=np.float64)
    image = np.sin(0.37 * i + 0.11 * (i % 7)).astype(np.float32).reshape(shape)
    found = session.run(None, {"image": image})[0]
    said = [2] + [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim][1:]
    assert list(found.shape) == said, (path, found.shape, said)
    return model, found.ravel()


def main(path):
    if path.is_file():
        model, found = logits(path)
        return print(path, len(model.graph.node), "nodes; logits", found.min(), "to", found.max(), "; mean", found.mean(dtype=np.float64))
    record = {}
    for file in sorted(path.glob("*.onnx")):
        model, found = logits(file)
        step = -(-len(found) // 60)
        record[file.stem] = {"checksum": checksum(model), "step": step, "logits": [float(f"{v:.8g}") for v in found[::step]]}
        print(file.stem, len(model.graph.node), "nodes, largest", np.abs(found).max(), flush=True)
    (Path(__file__).parent / "onnx_graphs.json").write_text(json.dumps(record) + "\n")


main(Path(sys.argv[1]))
