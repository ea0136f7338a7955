"""Plans of runs."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any, NamedTuple

from ._errors import OverLimit


class RunPoint(NamedTuple):
    """A point of the curve of memory against time.

    Attributes
    ----------
    ram : int
        The least memory limit in bytes, without a cache.
    vram : int or None
        The least limit of the device's memory in bytes; `None` on the processor.
    micro_batch : int
        Samples that go through the network at a time.
    seconds_per_step : float
        The predicted time of a step.
    recompute_fraction : float
        The operations for recomputation, as a fraction of the network's own.
    recomputed : tuple of str
        The values that are recomputed instead of held.
    """

    ram: int
    vram: int | None
    micro_batch: int
    seconds_per_step: float
    recompute_fraction: float
    recomputed: tuple[str, ...]


class PatchCost(NamedTuple):
    """The cost of a run with another patch.

    Attributes
    ----------
    patch_size : tuple of int
        Depth, height and width in voxels.
    batch_size : int
        Samples of a step.
    ram : int
        The memory limit in bytes with which nothing is recomputed, without a cache.
    vram : int or None
        The least limit of the device's memory in bytes; `None` on the processor.
    fits : bool
        `True` if the run fits the limit of the plan.
    seconds_per_step : float
        The predicted time of a step.
    """

    patch_size: tuple[int, int, int]
    batch_size: int
    ram: int
    vram: int | None
    fits: bool
    seconds_per_step: float


class WayOut(NamedTuple):
    """A change that would make a run fit.

    Attributes
    ----------
    change : str
        The change as keyword arguments.
    ram : int
        The least memory limit in bytes with it.
    """

    change: str
    ram: int


class RunPlan:
    """The plan of a run: its memory, part by part, and its time, before anything is trained.

    In notebooks a plan is shown as a table with a drawing of the arena: time across, addresses up.

    Attributes
    ----------
    numbers : dict
        All numbers of the plan, as ``plimsoll plan --json`` prints them.
    network : str
        The network in a few words.
    parts : dict of str to int
        The bytes of each part of the memory, which add up to `total`.
    device_parts : dict of str to int
        The same for the memory of a device; empty on the processor.
    curve : list of RunPoint or None
        The curve of memory against time, the fastest point first, if it was requested.
    patches : list of PatchCost
        The costs of smaller and larger patches, the smallest first.
    larger_patch : tuple of int or None
        A patch with more than one and a half times as many voxels that fits as well.
    ways_out : list of WayOut
        The changes that would make a run fit that does not.
    explanations : list of dict or None
        What becomes of the requested tensor, and why.
    arena_svg : str
        The drawing of the arena over one step.
    """

    def __init__(self, result: Mapping[str, Any]) -> None:
        self.numbers: dict[str, Any] = result["numbers"]
        self.network: str = result["network"]
        self.parts: dict[str, int] = {part["name"]: part["bytes"] for part in result["parts"]}
        self.device_parts: dict[str, int] = {part["name"]: part["bytes"] for part in result["device_parts"]}
        points = result.get("curve")
        self.curve = None if points is None else [_point(point) for point in points]
        self.patches = [_cost(cost) for cost in self.numbers["patches"]]
        larger = result["larger_patch"]
        self.larger_patch: tuple[int, int, int] | None = None if larger is None else _triple(larger)
        self.ways_out = [WayOut(way["flags"], way["minimum_ram_bytes"]) for way in self.numbers["ways_out"]]
        self.explanations: list[dict[str, Any]] | None = result.get("explanations")
        self.arena_svg: str = result["drawing"]
        self._problem: dict[str, Any] | None = result["problem"]

    @property
    def ram(self) -> int:
        """The memory limit in bytes."""
        return int(self.numbers["ram_budget_bytes"])

    @property
    def total(self) -> int:
        """The planned memory in bytes."""
        return int(self.numbers["total_bytes"])

    @property
    def minimum_ram(self) -> int:
        """The least memory limit in bytes with which the run fits."""
        return int(self.numbers["minimum_ram_bytes"])

    @property
    def feasible(self) -> bool:
        """`True` if the run fits its limits."""
        return bool(self.numbers["feasible"])

    @property
    def patch_size(self) -> tuple[int, int, int]:
        """Depth, height and width of a patch in voxels."""
        return _triple(self.numbers["patch_size"])

    @property
    def batch_size(self) -> int:
        """The number of samples of a step."""
        return int(self.numbers["batch_size"])

    @property
    def micro_batch(self) -> int:
        """The number of samples that go through the network at a time."""
        return int(self.numbers["micro_batch"])

    @property
    def parameters(self) -> int:
        """The number of learned numbers."""
        return int(self.numbers["parameters"])

    @property
    def recomputed(self) -> list[str]:
        """The values that are recomputed instead of held."""
        return list(self.numbers["recomputed"])

    @property
    def seconds_per_step(self) -> float:
        """The predicted time of a step."""
        return float(self.numbers["predicted_seconds_per_step"])

    @property
    def seconds(self) -> float:
        """The predicted time of the run."""
        return float(self.numbers["predicted_seconds"])

    def check(self) -> None:
        """Check that the run fits.

        Raises
        ------
        OverLimit
            If it does not. The remedy lists the changes that would make it fit.
        """
        if self._problem is not None:
            message, remedy = self._problem["message"], self._problem["remedy"]
            device = self.numbers["device"]
            if device is not None and device["minimum_vram_bytes"] > device["vram_budget_bytes"]:
                needed, limit = device["minimum_vram_bytes"], device["vram_budget_bytes"]
            else:
                needed, limit = self.minimum_ram, self.ram
            raise OverLimit(message, remedy, needed, limit, limit, [])

    def __repr__(self) -> str:
        fits = "fits" if self.feasible else "does not fit"
        return (
            f"<RunPlan of {self.network}: patch {_times(self.patch_size)}, batch {self.batch_size}; "
            f"{mib(self.total)} planned, {fits} {mib(self.ram)}; at least {mib(self.minimum_ram)}; "
            f"{self.seconds_per_step:.2f} s per step>"
        )

    def _repr_html_(self) -> str:
        held = {**self.parts, "total": self.total, "limit": self.ram, "least limit": self.minimum_ram}
        rows = "".join(f"<tr><td>{html.escape(name)}</td><td>{mib(count)}</td></tr>" for name, count in held.items())
        problem = self._problem
        verdict = "The run fits." if problem is None else html.escape(f"{problem['message']}; {problem['remedy']}")
        import base64

        drawing = base64.b64encode(self.arena_svg.encode()).decode()
        return (
            f"<p><b>{html.escape(self.network)}</b>: patch {_times(self.patch_size)}, batch {self.batch_size} in "
            f"micro-batches of {self.micro_batch}, {self.seconds_per_step:.2f} s per step, "
            f"{len(self.recomputed)} values recomputed. {verdict}</p><table>{rows}</table>"
            f'<img alt="the arena over one step" src="data:image/svg+xml;base64,{drawing}">'
        )


def mib(count: int) -> str:
    """Return a number of bytes for people."""
    if count >= 1 << 30:
        return f"{count / (1 << 30):.2f} GiB"
    return f"{count / (1 << 20):.1f} MiB"


def _times(triple: tuple[int, int, int]) -> str:
    return "×".join(map(str, triple))


def _triple(numbers: Any) -> tuple[int, int, int]:
    depth, height, width = numbers
    return int(depth), int(height), int(width)


def _point(point: Mapping[str, Any]) -> RunPoint:
    return RunPoint(
        ram=point["ram_bytes"],
        vram=point["vram_bytes"],
        micro_batch=point["micro_batch"],
        seconds_per_step=point["predicted_seconds_per_step"],
        recompute_fraction=point["recompute_flops_fraction"],
        recomputed=tuple(point["recomputed"]),
    )


def _cost(cost: Mapping[str, Any]) -> PatchCost:
    return PatchCost(
        patch_size=_triple(cost["patch_size"]),
        batch_size=cost["batch_size"],
        ram=cost["ram_bytes"],
        vram=cost["vram_bytes"],
        fits=cost["fits"],
        seconds_per_step=cost["predicted_seconds_per_step"],
    )
