"""The machine as jobs of this process see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ._call import Memory, as_bytes, call


class MemoryLimit(NamedTuple):
    """A limit of memory that the machine sets.

    Attributes
    ----------
    source : str
        What sets it.
    bytes : int
        The bytes that it leaves for this process.
    ceiling : int
        The limit itself in bytes, of all that it covers.
    """

    source: str
    bytes: int
    ceiling: int


@dataclass(frozen=True)
class Machine:
    """The machine as jobs of this process see it.

    Attributes
    ----------
    version : str
        The version of Plimsoll.
    cores : int or None
        The cores that this process may use, where the system describes them.
    threads : int
        The threads of kernels by default: one for each core.
    processor : str or None
        The name of the processor, where the system tells it.
    simd : str
        The instruction set of the kernels.
    multiplies_bf16 : bool
        Whether products of bf16 have an instruction of their own.
    gpu : dict or None
        The first GPU that the driver finds: ``name``, ``memory_bytes``, ``free_bytes`` and others.
    no_gpu : str or None
        Why there is none.
    limit : int
        The memory limit of a job in bytes: the lowest, or `ram`.
    limits : list of MemoryLimit
        All limits, the tightest first.
    numbers : dict
        All of it, as ``plimsoll doctor --json`` prints it.
    """

    version: str
    cores: int | None
    threads: int
    processor: str | None
    simd: str
    multiplies_bf16: bool
    gpu: dict[str, Any] | None
    no_gpu: str | None
    limit: int
    limits: list[MemoryLimit]
    numbers: Mapping[str, Any]


def doctor(*, ram: Memory = None) -> Machine:
    """Describe the machine: cores, instruction set, GPU, and the limits of memory.

    Parameters
    ----------
    ram : str or int, optional
        A memory limit; by default what the machine leaves.

    Returns
    -------
    Machine

    Examples
    --------
    >>> plimsoll.doctor().limits[0].source
    'available memory'
    """
    found = call("doctor", {"ram": as_bytes(ram, "ram")})
    limits = found["limits"]
    cores = found["cores"]
    keys = ("version", "threads", "processor", "simd", "multiplies_bf16", "gpu", "no_gpu")
    return Machine(
        **{key: found[key] for key in keys},
        cores=None if cores is None else cores["count"],
        limit=limits["limit"],
        limits=[MemoryLimit(one["source"], one["bytes"], one["ceiling"]) for one in limits["found"]],
        numbers=found,
    )
