"""Schedules of components."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from loss_cases import SHAPES, assert_equal, case, images, value_and_gradient  # noqa: E402

from plimsoll.torch import (  # noqa: E402
    BoundaryL1Loss,
    BoundaryLoss,
    Component,
    CompositeLoss,
    HausdorffDTLoss,
    SoftClDiceLoss,
    SurfaceDistanceLoss,
)


def counting(value: float) -> Callable:
    def loss(input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return input.sum() * 0 + value

    return loss


def composite(**options: object) -> CompositeLoss:
    return CompositeLoss(
        [
            Component(counting(1.0), name="each"),
            Component(counting(10.0), weight=2.0, every=3, phase=1, name="third"),
            Component(counting(100.0), every=2, from_epoch=1, otherwise=counting(1000.0), name="late"),
            Component(counting(10_000.0), mode="validation", name="validation"),
            Component(counting(100_000.0), mode="train", every=4, phase=3, rescale=True, name="rescaled"),
            Component(counting(math.nan), weight=0.0, name="off"),
        ],
        steps_per_epoch=4,
        **options,
    )


# Of steps 0 to 11 in epochs of 4 steps.
VALUES = [1, 21, 1, 400_001, 121, 1001, 101, 401_021, 101, 1001, 121, 401_001]


def test_components_are_computed_on_their_steps() -> None:
    loss = composite()
    logits = torch.zeros(1, requires_grad=True)
    for step, expected in enumerate(VALUES):
        assert loss.step == step
        assert loss(logits, logits).item() == expected
        # Validation in between counts no step.
        with torch.no_grad():
            assert float(loss(logits, logits)) == 1 + 20 + 100 + 10_000
        loss.eval()
        assert loss(logits, logits).item() == 1 + 20 + 100 + 10_000
        assert list(loss.parts) == ["each", "third", "late", "validation"]
        loss.train()
    loss = composite()
    loss(logits, logits)
    loss(logits, logits)
    assert {name: float(part) for name, part in loss.parts.items()} == {"each": 1, "third": 10}
    assert not any(part.requires_grad for part in loss.parts.values())


def test_schedules_continue_from_a_state() -> None:
    logits = torch.zeros(1, requires_grad=True)
    for stop in range(len(VALUES)):
        loss = composite()
        for _ in range(stop):
            loss(logits, logits)
        resumed = composite()
        resumed.load_state_dict(loss.state_dict())
        assert resumed.step == stop
        assert [resumed(logits, logits).item() for _ in VALUES[stop:]] == VALUES[stop:]
    for state in ({}, {"step": -1}, {"step": 1.5}, {"step": True}, None):
        with pytest.raises(ValueError, match="state must be"):
            composite().set_extra_state(state)


def test_calls_of_a_step_are_counted_once_with_advance(tmp_path: Path) -> None:
    loss = composite(auto_advance=False)
    logits = torch.zeros(1, requires_grad=True)
    for expected in VALUES:
        assert [loss(logits, logits).item() for _ in range(3)] == [expected] * 3
        loss.advance()
    torch.save(loss.state_dict(), tmp_path / "loss.pt")
    resumed = composite(auto_advance=False)
    resumed.load_state_dict(torch.load(tmp_path / "loss.pt"))
    assert resumed.step == len(VALUES)
    with pytest.raises(ValueError, match="auto_advance"):
        composite().advance()


def test_a_compiled_composite_has_a_graph_for_each_set_of_components() -> None:
    logits, labels = case(SHAPES[0])
    arguments = {"softmax": True, "to_onehot_y": True}

    def make() -> CompositeLoss:
        surface = SurfaceDistanceLoss(**arguments, scale=2)
        late = Component(surface, weight=0.5, every=4, phase=1, otherwise="boundary_l1")
        return CompositeLoss([SoftClDiceLoss(**arguments), late], auto_advance=False)

    graphs = 0

    def backend(graph: object, inputs: object) -> object:
        nonlocal graphs
        graphs += 1
        return graph

    torch.compiler.reset()
    loss, plain = make(), make()
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    for _ in range(9):
        expected = value_and_gradient(plain, logits, labels)
        assert_equal(value_and_gradient(compiled, logits, labels), expected, 1e-6)
        loss.advance()
        plain.advance()
    assert graphs == 2
    torch.compiler.reset()
    with pytest.raises(Exception, match="auto_advance"):
        torch.compile(CompositeLoss([BoundaryLoss(**arguments)]), fullgraph=True, backend=backend)(logits, labels)


def test_the_substitute_has_the_arguments_of_its_loss() -> None:
    logits, labels = case(SHAPES[0])
    arguments = {"softmax": True, "to_onehot_y": True, "ignore_index": 2, "scale": 2}
    loss = CompositeLoss(
        [Component(HausdorffDTLoss(**arguments), weight=0.25, every=2, phase=1, otherwise="boundary_l1")]
    )
    expected = value_and_gradient(BoundaryL1Loss(**arguments), logits, labels)
    value, gradient = value_and_gradient(loss, logits, labels)
    assert_equal((value, gradient), (0.25 * expected[0], 0.25 * expected[1]), 1e-6)
    assert list(loss.parts) == ["BoundaryL1Loss for HausdorffDTLoss"]


def test_components_must_return_scalars() -> None:
    loss = CompositeLoss([HausdorffDTLoss(softmax=True, to_onehot_y=True, reduction="none")])
    with pytest.raises(ValueError, match="the loss HausdorffDTLoss must return a scalar"):
        loss(**images())
