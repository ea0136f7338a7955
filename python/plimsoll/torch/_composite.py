"""Weighted sums of losses that are computed on some steps only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Literal

import torch
from torch import Tensor

from ._boundary import BoundaryL1Loss
from ._shape_loss import ShapeLoss, not_negative, whole_number

LossFunction = Callable[[Tensor, Tensor], Tensor]

LONGEST_PERIOD = 100_000
"""Schedules repeat after this many steps at most."""


class Turn(Enum):
    """The part of a component that is computed."""

    OFF = "off"
    SUBSTITUTE = "substitute"
    ON = "on"


class Component(torch.nn.Module):
    """A loss with its weight and its schedule, which has the meaning and the names of the library's settings.

    Parameters
    ----------
    loss : callable
        A loss of an input and a target, which returns a scalar: of this package, of MONAI, or a function.
    weight : float, optional
        The factor of the loss; 0 disables the component.
    every : int, optional
        From one step that computes the loss to the next, in steps.
    phase : int, optional
        The first step that computes it. Steps and epochs are counted from 0.
    from_epoch : int, optional
        The first epoch whose steps compute it, or the substitute. Validation computes it from the beginning.
    mode : {"both", "train", "validation"}, optional
        Where it is computed.
    rescale : bool, optional
        Multiply the weight by `every` on steps, so that its mean over steps stays.
    otherwise : {"nothing", "boundary_l1"} or callable, optional
        The substitute on other steps, with the same weight. ``"boundary_l1"`` is `BoundaryL1Loss` with the arguments of
        the loss, which must be of this module.
    name : str, optional
        The name in `CompositeLoss.parts`; by default the class or the function of the loss.

    Examples
    --------
    >>> from plimsoll.torch import Component, SurfaceDistanceLoss
    >>> loss = SurfaceDistanceLoss(sigmoid=True, scale=2)
    >>> component = Component(loss, weight=0.07, every=4, phase=1, otherwise="boundary_l1")
    """

    def __init__(
        self,
        loss: LossFunction,
        weight: float = 1.0,
        *,
        every: int = 1,
        phase: int = 0,
        from_epoch: int = 0,
        mode: Literal["both", "train", "validation"] = "both",
        rescale: bool = False,
        otherwise: Literal["nothing", "boundary_l1"] | LossFunction = "nothing",
        name: str | None = None,
    ) -> None:
        super().__init__()
        if not callable(loss) or isinstance(loss, type):
            raise TypeError(f"loss must be a function of an input and a target, not {type(loss).__name__}")
        self.loss = loss
        self.weight = not_negative("weight", weight)
        self.every = whole_number("every", every, 1)
        self.phase = whole_number("phase", phase, 0)
        self.from_epoch = whole_number("from_epoch", from_epoch, 0)
        if mode not in ("both", "train", "validation"):
            raise ValueError(f"mode is {mode!r}, but must be 'both', 'train' or 'validation'")
        self.mode = str(mode)
        self.rescale = bool(rescale)
        self.substitute = _substitute(loss, otherwise)
        self.name = _name_of(loss) if name is None else str(name)
        self.substitute_name = _name_of(self.substitute)
        self._check_schedule()

    def _check_schedule(self) -> None:
        if self.phase >= self.every:
            raise ValueError(f"phase is {self.phase}, but must be below every, which is {self.every}")
        has_substitute = self.substitute is not None
        if self.mode == "validation":
            given = {"every": self.every != 1, "from_epoch": self.from_epoch != 0, "rescale": self.rescale}
            for option, is_given in {**given, "otherwise": has_substitute}.items():
                if is_given:
                    raise ValueError(f"{option} has no effect: with mode='validation' no step computes the loss")
        if self.every == 1 and (self.rescale or has_substitute):
            option = "rescale" if self.rescale else "otherwise"
            raise ValueError(f"{option} has no effect: with every=1 each step computes the loss")
        if self.rescale and has_substitute:
            raise ValueError("rescale excludes otherwise, which keeps the weight on the other steps already")

    def turn(self, step: int, epoch: int) -> Turn:
        """Return the part of the component that a training step computes."""
        if self.weight == 0 or self.mode == "validation" or epoch < self.from_epoch:
            return Turn.OFF
        if step % self.every == self.phase:
            return Turn.ON
        return Turn.OFF if self.substitute is None else Turn.SUBSTITUTE

    def turn_in_validation(self) -> Turn:
        """Return the part of the component that validation computes."""
        return Turn.OFF if self.weight == 0 or self.mode == "train" else Turn.ON

    def forward(self, input: Tensor, target: Tensor, turn: Turn = Turn.ON) -> Tensor:
        """Return the value of the loss or of its substitute, without the weight."""
        loss = self.loss if turn is Turn.ON else self.substitute
        if loss is None:
            raise ValueError("turn needs a substitute, but otherwise is 'nothing'")
        value = loss(input, target)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ValueError(f"the loss {self.name} must return a scalar; pass reduction='mean' or 'sum' to it")
        return value.reshape(())

    def extra_repr(self) -> str:
        """Return the weight and the schedule."""
        names = ("weight", "every", "phase", "from_epoch", "mode", "rescale")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


class CompositeLoss(torch.nn.Module):
    """A weighted sum of losses, each of which may be computed on some steps only.

    In training mode each call is a step. A call counts as validation in evaluation mode (``loss.eval()``) and where
    gradients are disabled. If a step has several calls, as with accumulated gradients, or if the loss is compiled by
    `torch.compile`, pass ``auto_advance=False`` and call `advance` after each step of the optimizer.

    The step is in `state_dict`, so that a resumed run continues the schedule.

    Parameters
    ----------
    components : iterable of Component or callable
        The components. A loss without a schedule has the weight 1.
    steps_per_epoch : int, optional
        The number of steps of an epoch, which `from_epoch` of a component needs.
    auto_advance : bool, optional
        Count each call in training mode as a step.

    Attributes
    ----------
    parts : dict of str to Tensor
        The values that the last call computed, without weights and gradients.

    Examples
    --------
    >>> import torch
    >>> from plimsoll.torch import Component, CompositeLoss, SoftClDiceLoss, SurfaceDistanceLoss
    >>> loss = CompositeLoss([
    ...     Component(SoftClDiceLoss(sigmoid=True), weight=0.9),
    ...     Component(SurfaceDistanceLoss(sigmoid=True), weight=0.1, every=4, phase=1, otherwise="boundary_l1"),
    ... ])
    >>> logits = torch.zeros(1, 1, 4, 8, 8, requires_grad=True)
    >>> loss(logits, torch.ones(1, 1, 4, 8, 8)).backward()
    >>> loss.step, list(loss.parts)
    (1, ['SoftClDiceLoss', 'BoundaryL1Loss for SurfaceDistanceLoss'])
    """

    def __init__(
        self,
        components: Iterable[Component | LossFunction],
        *,
        steps_per_epoch: int | None = None,
        auto_advance: bool = True,
    ) -> None:
        super().__init__()
        if not isinstance(components, Iterable):
            raise TypeError(f"components must be a sequence of losses, not {type(components).__name__}")
        whole = list(components)
        for number, component in enumerate(whole):
            if not callable(component) or isinstance(component, type):
                raise TypeError(f"components[{number}] must be a loss, not {type(component).__name__}")
        scheduled = [part if isinstance(part, Component) else Component(part) for part in whole]
        self.components = torch.nn.ModuleList(scheduled)
        self.steps_per_epoch = None if steps_per_epoch is None else whole_number("steps_per_epoch", steps_per_epoch, 1)
        self.auto_advance = bool(auto_advance)
        self.parts: dict[str, Tensor] = {}
        self._names = tuple(_unique(component.name for component in scheduled))
        self._check()
        self._validation = tuple(component.turn_in_validation() for component in scheduled)
        self._move_to(0)

    @property
    def step(self) -> int:
        """The number of completed steps, which is also the index of the next one."""
        return self._step

    def advance(self) -> None:
        """Count a step, if `auto_advance` is off: call it after each step of the optimizer."""
        if self.auto_advance:
            raise ValueError("auto_advance is True, so each call counts as a step; pass auto_advance=False")
        self._move_to(self._step + 1)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the weighted sum of the losses of this step, or of validation."""
        is_step = self.training and torch.is_grad_enabled()
        if is_step and self.auto_advance and torch.compiler.is_compiling():
            raise RuntimeError(
                "auto_advance counts steps, which a compiled graph cannot;"
                " pass auto_advance=False and call advance() after each step"
            )
        turns = self._turns if is_step else self._validation
        total: Tensor | None = None
        parts = {}
        for name, component, turn in zip(self._names, self._scheduled(), turns, strict=True):
            if turn is Turn.OFF:
                continue
            value = component(input, target, turn)
            factor = component.every if component.rescale and is_step else 1
            weighted = value * (component.weight * factor)
            total = weighted if total is None else total + weighted
            parts[name if turn is Turn.ON else f"{component.substitute_name} for {name}"] = value.detach()
        self.parts = parts
        if is_step and self.auto_advance:
            self._move_to(self._step + 1)
        assert total is not None
        return total

    def get_extra_state(self) -> dict[str, int]:
        """Return the state that `state_dict` has beside the state of the losses: the step."""
        return {"step": self._step}

    def set_extra_state(self, state: Any) -> None:
        """Continue at the step of a state."""
        step = state.get("step") if isinstance(state, dict) else None
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise ValueError(f"state must be that of a CompositeLoss, with a step; found {state!r}")
        self._move_to(step)

    def _move_to(self, step: int) -> None:
        self._step = step
        # Compiled graphs depend on the turns alone, and so are as many as there are different ones.
        epoch = 0 if self.steps_per_epoch is None else step // self.steps_per_epoch
        self._turns = tuple(component.turn(step, epoch) for component in self._scheduled())

    def _scheduled(self) -> list[Component]:
        return [component for component in self.components if isinstance(component, Component)]

    def _check(self) -> None:
        components = self._scheduled()
        if self.steps_per_epoch is None and any(component.from_epoch > 0 for component in components):
            raise ValueError("steps_per_epoch is needed by from_epoch of a component")
        period = math.lcm(*(component.every for component in components))
        if period > LONGEST_PERIOD:
            raise ValueError(f"components have schedules that repeat after {period} steps; at most {LONGEST_PERIOD}")
        for epoch in sorted({0, *(component.from_epoch for component in components)}):
            for step in range(period):
                if all(component.turn(step, epoch) is Turn.OFF for component in components):
                    raise ValueError(f"components are all off on step {step} of epoch {epoch}; one must be computed")
        if all(component.turn_in_validation() is Turn.OFF for component in components):
            raise ValueError("components are all off in validation; one must be computed")


def _name_of(loss: object) -> str:
    return str(getattr(loss, "__name__", type(loss).__name__))


def _substitute(loss: LossFunction, otherwise: object) -> LossFunction | None:
    if otherwise == "nothing":
        return None
    if otherwise == "boundary_l1":
        if not isinstance(loss, ShapeLoss):
            raise ValueError("otherwise='boundary_l1' needs a loss of plimsoll.torch; pass a BoundaryL1Loss instead")
        arguments = loss.common_arguments()
        del arguments["threads"]
        return BoundaryL1Loss(**arguments)
    if not callable(otherwise):
        raise ValueError(f"otherwise is {otherwise!r}, but must be 'nothing', 'boundary_l1' or a loss")
    return otherwise


def _unique(names: Iterable[str]) -> Iterator[str]:
    """Append a number to names that occurred before."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        yield name if counts[name] == 1 else f"{name} {counts[name]}"
