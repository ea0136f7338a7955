"""Estimates of training steps against real steps, and against arithmetic."""

from __future__ import annotations

import bisect
import copy
import functools
import gc
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import plimsoll

pytest.importorskip("torch")

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

SHAPE = (2, 1, 16, 16, 16)


class Block(torch.nn.Module):
    """A convolution, a normalisation and a nonlinearity that works in place."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv3d(inside, outside, 3, padding=1)
        self.norm = torch.nn.InstanceNorm3d(outside, affine=True)
        self.act = torch.nn.LeakyReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        return self.act(self.norm(self.convolution(x)))


class UNet(torch.nn.Module):
    """Two levels with a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Sequential(Block(1, 8), Block(8, 8))
        self.bottom = torch.nn.Sequential(Block(8, 16), Block(16, 16))
        self.up = torch.nn.ConvTranspose3d(16, 8, 2, 2)
        self.decoder = torch.nn.Sequential(Block(16, 8), Block(8, 8))
        self.head = torch.nn.Conv3d(8, 3, 1)

    def forward(self, x: Any) -> Any:
        skip = self.encoder(x)
        x = self.up(self.bottom(torch.nn.functional.max_pool3d(skip, 2)))
        return self.head(self.decoder(torch.cat([skip, x], 1)))


def segresnet() -> Any:
    return pytest.importorskip("monai.networks.nets").SegResNet(init_filters=8, in_channels=1, out_channels=2)


def dynunet() -> Any:
    nets = pytest.importorskip("monai.networks.nets")
    net = nets.DynUNet(3, 1, 2, [3] * 3, [1, 2, 2], [2, 2], filters=[8, 16, 32], deep_supervision=True, deep_supr_num=1)
    return net


def swinunetr() -> Any:
    nets = pytest.importorskip("monai.networks.nets")
    return nets.SwinUNETR(in_channels=1, out_channels=2, feature_size=12, use_checkpoint=True, drop_rate=0.1)


class Names(TorchDispatchMode):
    """Collects the names of ops below autograd."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.name().split(".")[0])
        return func(*args, **(kwargs or {}))


def measured(net: Any, shape: tuple[int, ...], passes: int = 1) -> int:
    """Return the most tensor memory that exists when an op returns, in a network's second step, by torch's profiler."""
    optimizer = torch.optim.AdamW(net.parameters())
    batch = torch.zeros(shape)

    def step() -> None:
        for _ in range(passes):
            loss = net(batch).square().mean()
            loss.backward()
        optimizer.step()

    with Names() as ops:
        step()
    optimizer.zero_grad()
    gc.collect()
    lasting = [batch, *net.parameters(), *net.buffers()]
    lasting += [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    events = profiled.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    held = [sum(tensor.untyped_storage().nbytes() for tensor in lasting)]
    for _, change in changes:
        held.append(held[-1] + change)
    peak, end = held[0], 0
    intervals = sorted((event.start_ns(), -event.duration_ns()) for event in events if event.name() in ops.names)
    for start, negative in intervals:
        if start >= end:
            end = start - negative
            peak = max(peak, held[bisect.bisect_right(changes, (end, 1 << 62))])
    return int(peak)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (UNet, (2, 1, 16, 16, 16)),
        (UNet, (1, 1, 24, 32, 32)),
        (dynunet, (1, 1, 32, 32, 32)),
        (segresnet, (1, 1, 32, 32, 32)),
        (swinunetr, (1, 1, 64, 32, 32)),
    ],
)
def test_the_peak_is_the_tensor_memory_of_a_real_step(make: Callable[[], Any], shape: tuple[int, ...]) -> None:
    net = make()
    found = plimsoll.estimate(net, shape, device="cpu", checkpoints=0)
    assert found.peak == pytest.approx(measured(net, shape), rel=0.01)
    assert found.peak == sum(found.at_peak.values())


def test_the_saving_of_a_checkpoint_is_the_saving_of_a_real_step() -> None:
    net = UNet()
    found = plimsoll.estimate(net, SHAPE, device="cpu", checkpoints=2)
    assert found.checkpoints
    before = measured(copy.deepcopy(net), SHAPE)
    names = []
    for row in found.checkpoints:
        names.append(row.module)
        child = net.get_submodule(row.module)
        child.forward = functools.partial(checkpoint, child.forward, use_reentrant=False)
        after = measured(net, SHAPE)
        assert before - after == pytest.approx(row.saved, rel=0.05) and row.saved > 0 and row.recomputed_flops > 0
        assert row.peak == pytest.approx(after, rel=0.01)
        before = after
    again = plimsoll.estimate(UNet(), SHAPE, device="cpu", checkpoint=names, checkpoints=0)
    assert again.peak == found.checkpoints[-1].peak


def test_gradients_of_an_accumulated_step_are_counted() -> None:
    net = UNet()
    found = plimsoll.estimate(net, (4, *SHAPE[1:]), micro_batch=2, device="cpu", checkpoints=0)
    assert found.peak == pytest.approx(measured(net, SHAPE, passes=2), rel=0.01)
    whole = plimsoll.estimate(net, (4, *SHAPE[1:]), device="cpu", checkpoints=0)
    assert found.peak < whole.peak


def test_the_parts_of_a_perceptron_are_those_of_arithmetic() -> None:
    samples, width, depth = 64, 32, 5
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.Tanh())]
    net = torch.nn.Sequential(*layers)
    found = plimsoll.estimate(net, (samples, width), loss=lambda out: out.sum(), optimizer="adam", checkpoints=0)
    values = depth * (width * width + width)
    assert found.parameters == found.gradients == 4 * values
    assert found.optimizer == 2 * 4 * values + 2 * depth * 4
    assert found.inputs == 4 * samples * width
    # Tanh saves its result, which the next layer saves too; a layer's own result is freed. The loss is one number.
    assert found.activations == depth * 4 * samples * width + 4
    assert found.buffers == 0


def test_recomputation_needs_less_than_any_allocator_and_costs_operations() -> None:
    found = plimsoll.estimate(UNet(), SHAPE, checkpoints=0)
    assert found.least < found.lower_bound <= found.peak
    sizes = [point.bytes for point in found.curve]
    costs = [point.recomputed_flops for point in found.curve]
    assert sizes == sorted(set(sizes), reverse=True) and costs == sorted(costs) and costs[0] == 0 < costs[-1]
    assert found.least == sizes[-1] >= found.parameters + found.optimizer


def test_dropout_is_not_recomputed() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), *[torch.nn.Dropout(0.5) for _ in range(20)])
    found = plimsoll.estimate(net, (512, 64), checkpoints=0)
    masks = 20 * 512 * 64
    assert found.activations >= masks and found.least >= masks


def test_other_optimizers_and_types() -> None:
    net = UNet()
    adam, none = (plimsoll.estimate(net, SHAPE, optimizer=name, checkpoints=0) for name in ("adam", None))
    sgd = plimsoll.estimate(net, SHAPE, optimizer=functools.partial(torch.optim.SGD, momentum=0.9), checkpoints=0)
    own = plimsoll.estimate(net, SHAPE, optimizer=torch.optim.AdamW(net.parameters(), lr=1e-4), checkpoints=0)
    assert none.optimizer == 0 and sgd.optimizer == sgd.parameters < adam.optimizer == own.optimizer
    half = plimsoll.estimate(net, SHAPE, dtype="bfloat16", checkpoints=0)
    assert 2 * half.parameters == adam.parameters and half.activations < 0.6 * adam.activations
    mixed = plimsoll.estimate(net, SHAPE, autocast="bfloat16", checkpoints=0)
    assert mixed.parameters == adam.parameters and half.activations < mixed.activations < adam.activations


def test_a_gpu_has_temporaries_of_optimizers_over_lists() -> None:
    net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
    gpu, cpu = (plimsoll.estimate(net, (1, 256), device=device, checkpoints=0) for device in ("cuda", "cpu"))
    assert gpu.at_peak["temporaries"] >= gpu.parameters > cpu.at_peak["temporaries"]
    assert "optimizer" in gpu.peak_at


def test_the_loss_and_its_target_are_counted() -> None:
    net = UNet()
    target = torch.empty(2, 16, 16, 16, dtype=torch.int64, device="meta")
    found = plimsoll.estimate(net, SHAPE, loss=torch.nn.CrossEntropyLoss(), target=target, checkpoints=0)
    plain = plimsoll.estimate(net, SHAPE, checkpoints=0)
    assert found.inputs == plain.inputs + 8 * 2 * 16**3
    assert any("loss" in text for text in plain.unseen) and not any("loss" in text for text in found.unseen)


def test_the_module_is_not_changed() -> None:
    net = UNet().eval()
    before = {name: (id(value), value.clone()) for name, value in net.state_dict(keep_vars=True).items()}
    state = torch.get_rng_state()
    with torch.no_grad():
        plimsoll.estimate(net, SHAPE, checkpoint=["bottom"], checkpoints=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert not net.training and all(parameter.grad is None for parameter in net.parameters())
    for name, value in net.state_dict(keep_vars=True).items():
        assert id(value) == before[name][0] and torch.equal(value, before[name][1])
    assert not any(child._forward_hooks or child._forward_pre_hooks for child in net.modules())


def test_a_submodule_that_changes_its_input_is_not_proposed() -> None:
    class InPlace(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.sin(torch.exp(x.mul_(2)))

    net = torch.nn.Sequential(torch.nn.Linear(64, 64), InPlace(), torch.nn.Linear(64, 64))
    found = plimsoll.estimate(net, (4096, 64), checkpoints=3)
    assert "1" not in [row.module for row in found.checkpoints]


NO_MEMORY = """
import resource, torch, plimsoll
def peak(): return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def net():
    layers = torch.nn.Conv3d(1, 32, 3), torch.nn.Conv3d(32, 32, 3), torch.nn.ReLU(), torch.nn.Conv3d(32, 2, 1)
    return torch.nn.Sequential(*layers)
plimsoll.estimate(net(), (1, 1, 8, 8, 8))
before = peak()
found = plimsoll.estimate(net(), (2, 1, 192, 192, 192))
print(found.peak, peak() - before)
"""


def test_no_tensor_has_memory() -> None:
    done = subprocess.run([sys.executable, "-c", NO_MEMORY], capture_output=True, text=True, check=True)
    needed, growth = map(int, done.stdout.split())
    assert needed > 4 << 30 and growth < 16 << 20


def custom_op(name: str, *, has_shapes: bool) -> Any:
    @torch.library.custom_op(f"plimsoll_test::{name}", mutates_args=())  # type: ignore[untyped-decorator, unused-ignore]
    def op(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    op.register_autograd(lambda context, grad: grad)
    if has_shapes:
        op.register_fake(torch.empty_like)
    return op


class Calls(torch.nn.Module):
    """Calls a function behind a layer."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.inner = torch.nn.Identity()
        self.inner.forward = function  # type: ignore[method-assign, assignment]

    def forward(self, x: Any) -> Any:
        return self.inner(self.layer(x))


def test_what_cannot_be_seen_is_named() -> None:
    found = plimsoll.estimate(Calls(custom_op("known", has_shapes=True)), (4, 8), checkpoints=0)
    assert any("plimsoll_test.known" in text for text in found.unseen)
    with pytest.raises(plimsoll.Error, match=r"'inner'.*plimsoll_test\.unknown") as caught:
        plimsoll.estimate(Calls(custom_op("unknown", has_shapes=False)), (4, 8))
    assert "register_fake" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("function", "op"),
    [(lambda x: x[x > 0], "aten.index.Tensor"), (lambda x: x * 2 if x.sum() > 0 else x, "aten._local_scalar_dense")],
)
def test_an_op_that_depends_on_data_is_an_error(function: Callable[[Any], Any], op: str) -> None:
    with pytest.raises(plimsoll.Error, match=f"'inner'.*{op}") as caught:
        plimsoll.estimate(Calls(function), (4, 8))
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("arguments", "error", "argument"),
    [
        ({"example_shape": ()}, ValueError, "example_shape"),
        ({"example_shape": (2, 0, 4)}, ValueError, "example_shape"),
        ({"example_shape": 3}, TypeError, "example_shape"),
        ({"optimizer": "adamx"}, ValueError, "optimizer"),
        ({"device": "tpu"}, ValueError, "device"),
        ({"dtype": "int8"}, ValueError, "dtype"),
        ({"autocast": "float17"}, ValueError, "autocast"),
        ({"micro_batch": 3}, ValueError, "micro_batch"),
        ({"checkpoint": ["decoder.9"]}, ValueError, "checkpoint"),
        ({"checkpoints": -1}, ValueError, "checkpoints"),
        ({"target": "labels"}, TypeError, "target"),
        ({"loss": lambda out: out}, ValueError, "loss"),
        ({"module": "net"}, TypeError, "module"),
        ({"module": torch.nn.LazyLinear(3)}, ValueError, "module"),
        ({"module": torch.nn.ReLU()}, ValueError, "module"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], error: type, argument: str) -> None:
    with pytest.raises(error, match=f"^{argument} "):
        plimsoll.estimate(**{"module": torch.nn.Conv3d(1, 2, 3), "example_shape": SHAPE, "checkpoints": 0, **arguments})


def test_an_estimate_is_readable() -> None:
    found = plimsoll.estimate(UNet(), SHAPE, checkpoints=1)
    text, page = str(found), found._repr_html_()
    assert "Memory of a training step of UNet" in text and "fragmentation" in text
    for words in (text, page):
        assert found.checkpoints[0].module in words and "lower bound" in words
    assert "<svg" in page and page.count("<table>") == page.count("</table>") == 3
