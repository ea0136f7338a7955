"""Operators of PyTorch, compiled graphs, memory and threads."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from loss_cases import LOSSES, SHAPES, assert_equal, case, value_and_gradient  # noqa: E402

from plimsoll.torch import (  # noqa: E402
    LogHausdorffDTLoss,
    _ops,
    _transfer,
)


def test_operators_pass_the_checks_of_pytorch() -> None:
    volumes = torch.rand(2, 3, 5, 6, 7, requires_grad=True)
    labels = torch.randint(0, 3, (2, 1, 5, 6, 7))
    calls = [
        (_ops.distance_transform, (volumes, [1.0, 2.0, 0.5], "boundary", True, None)),
        (_ops.distance_transform, (volumes.detach() > 0.5, [1.0, 2.0, 0.5], "mask", False, 2)),
        (_ops.distance_transform, (volumes.detach().transpose(2, 4), [1.0, 2.0], "mask", False, 1)),
        (_ops.dilated_skeleton, (volumes, 3, 2, None)),
        (_ops.dilated_skeleton, (volumes.detach() > 0.5, 2, 0, 1)),
        (_ops.one_hot, (labels, 3, 1, None)),
        (_ops.one_hot, (labels.byte(), 3, 0, 2)),
        (_ops.one_hot, (labels.float(), 3, 1, 255)),
    ]
    for operator, arguments in calls:
        results = torch.library.opcheck(operator, arguments)
        assert set(results.values()) == {"SUCCESS"}
        assert not operator(*arguments).requires_grad


@pytest.mark.parametrize("kind", [*LOSSES, LogHausdorffDTLoss])
def test_compiled_losses_are_one_graph_with_the_same_value_and_gradient(kind: type) -> None:
    logits, labels = case(SHAPES[0])
    loss = kind(softmax=True, to_onehot_y=True)
    expected = value_and_gradient(loss, logits, labels)
    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert_equal(value_and_gradient(compiled, logits, labels), expected, 1e-6)
    with pytest.raises(ValueError, match="target has labels"):
        compiled(logits, labels + 7)


@pytest.mark.parametrize("kind", LOSSES)
def test_exported_losses_have_the_same_value(kind: type) -> None:
    logits, labels = case(SHAPES[0])
    loss = kind(softmax=True, to_onehot_y=True)
    exported = torch.export.export(loss, (logits.detach(), labels)).module()
    torch.testing.assert_close(exported(logits.detach(), labels), loss(logits, labels).detach())


def test_distances_and_masks_are_shared_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    transform = _ops.transform

    def record(mask: np.ndarray, sampling: object, **options: object) -> object:
        seen.append((mask.ctypes.data, options["distances"].ctypes.data))
        return transform(mask, sampling, **options)

    monkeypatch.setattr(_ops, "transform", record)
    mask = torch.rand(2, 2, 4, 5, 6) > 0.5
    distances = _ops.distance_transform(mask, [1.0] * 3, "boundary", False, None)
    volumes = [(n, c) for n in range(2) for c in range(2)]
    assert seen == [(mask[volume].data_ptr(), distances[volume].data_ptr()) for volume in volumes]
    written = []
    inner = _ops._plimsoll.skeletonize

    def record_skeleton(*arguments: object, **options: object) -> object:
        written.append([arguments[0].ctypes.data, arguments[4].ctypes.data])
        return inner(*arguments, **options)

    monkeypatch.setattr(_ops._plimsoll, "skeletonize", record_skeleton)
    skeleton = _ops.dilated_skeleton(mask, 3, 2, None)
    assert written == [[mask[volume].data_ptr(), skeleton[volume].data_ptr()] for volume in volumes]


@pytest.mark.parametrize("volumes_of_chunk", [0, 1, 2, 3, 100])
@pytest.mark.parametrize("batch", [(1, 1), (2, 3), (5,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.uint8, torch.int64])
def test_chunks_give_what_volumes_in_place_give(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, batch: tuple, volumes_of_chunk: int
) -> None:
    values = torch.rand(*batch, 4, 5, 6)
    values = values if dtype.is_floating_point else (3 * values).to(dtype)
    expected = _ops.distance_transform(values, [2.0, 1.0, 0.5], "boundary", False, 1)
    stages, loads = [], []

    class Stage(_transfer.Stage):
        def __init__(self, count: int, *arguments: object) -> None:
            super().__init__(count, *arguments)
            stages.append(count)

        def load(self, masks: list) -> None:
            loads.append(len(masks))
            super().load(masks)

    monkeypatch.setattr(_transfer, "Stage", Stage)
    limit = volumes_of_chunk * 4 * 5 * 6 * 5

    def in_chunks(values, axes, mask_of, write, dtype):  # noqa: ANN001, ANN202
        result = torch.full(values.shape, math.nan, dtype=dtype)
        indices = list(np.ndindex(values.shape[:-axes]))
        _transfer.map_in_chunks(values, result, indices, mask_of, write, limit)
        return result

    monkeypatch.setattr(_ops, "map_volumes", in_chunks)
    found = _ops.distance_transform(values, [2.0, 1.0, 0.5], "boundary", False, 1)
    assert torch.equal(found, expected)
    count, chunk = math.prod(batch), min(max(volumes_of_chunk, 1), math.prod(batch))
    assert loads == [min(chunk, count - first) for first in range(0, count, chunk)]
    assert stages == [chunk] * min(2, len(loads))


def test_inputs_are_not_changed() -> None:
    logits, labels = case(SHAPES[0])
    before = logits.detach().clone(), labels.clone()
    for kind in LOSSES:
        for scale in (1, 2):
            kind(softmax=True, to_onehot_y=True, scale=scale)(logits, labels).backward()
    assert torch.equal(logits.detach(), before[0]) and torch.equal(labels, before[1])


def test_eight_threads_compute_their_own_losses() -> None:
    cases = [case((1, 3, 8, 9, 10)) for _ in range(8)]
    for seed, (logits, _) in enumerate(cases):
        logits.data += 0.1 * seed
    losses = [kind(softmax=True, to_onehot_y=True) for kind in LOSSES]
    expected = [[value_and_gradient(loss, *of_thread) for loss in losses] for of_thread in cases]
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(5):
                for loss, wanted in zip(losses, expected[number], strict=True):
                    assert_equal(value_and_gradient(loss, *cases[number]), wanted, 1e-6)
        except BaseException as fault:
            faults.append(fault)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not faults


def test_a_thousand_steps_keep_memory_flat() -> None:
    program = """
import torch
from plimsoll.torch import *
def resident():
    with open("/proc/self/statm") as file:
        return 4096 * int(file.read().split()[1])
torch.set_num_threads(1)
logits = torch.rand(1, 2, 16, 24, 24, requires_grad=True)
labels = (torch.rand(1, 1, 16, 24, 24) > 0.5).long()
options = {"softmax": True, "to_onehot_y": True}
kinds = BoundaryLoss, SurfaceDistanceLoss, HausdorffDTLoss, SkeletonRecallLoss
loss = CompositeLoss([kind(**options) for kind in kinds])
def steps(count):
    for _ in range(count):
        logits.grad = None
        loss(logits, labels).backward()
steps(100)
before = resident()
steps(1000)
print(resident() - before)
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("the resident memory is not readable")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 2 << 20


def test_pytorch_is_imported_with_the_losses_alone() -> None:
    program = "import sys, plimsoll; assert 'torch' not in sys.modules; import plimsoll.torch"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_pytorch_the_import_says_what_to_install() -> None:
    program = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Missing())
import plimsoll
try:
    import plimsoll.torch
except ImportError as error:
    assert "pip install torch" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True)
