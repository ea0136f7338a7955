"""The search for submodules whose checkpointing saves the most memory per additional operation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import _plimsoll
from ._step_trace import INTERMEDIATE, ROLES, Job, Trace, is_within, record

LEAST_SAVING = 0.01
"""The share of the peak that a checkpoint must save."""
LEAST_COST = 0.01
"""The share of the step's operations that a checkpoint is charged at least, so that a large one precedes tiny ones."""
ATTEMPTS = 3
"""The number of candidates that are traced for one checkpoint."""

PARTS = ("parameters", "buffers", "optimizer", "inputs", "gradients", "activations", "temporaries")


class Measured:
    """A trace with its peak."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        memory = _plimsoll.step_memory(trace.storages, trace.ops, trace.forward_ends)
        live, self.operation, self.activations, parts = memory
        self.live = np.array(live, np.int64)
        self.peak = live[self.operation]
        self.parts = dict(zip(PARTS, parts, strict=True))

    def totals(self) -> dict[str, int]:
        """Return the bytes of all storages of each role."""
        totals = dict.fromkeys(ROLES, 0)
        for storage in self.trace.storages:
            totals[ROLES[storage.role]] += storage.bytes
        return totals

    def place(self) -> str:
        """Return the op of the peak, its pass and its submodule."""
        op = self.trace.ops[self.operation]
        within = f" of {op.module}" if op.module else ""
        return f"{op.name} in the {op.phase if op.phase == 'optimizer' else op.phase + ' pass'}{within}"


def find_checkpoints(
    job: Job, checkpointed: Sequence[str], before: Measured, most: int
) -> Iterator[tuple[str, int, float, int]]:
    """Yield submodules with the bytes saved, the additional operations as a fraction of the step's, and the new peak.

    Each is chosen by an estimate from the trace so far, and confirmed by a trace with the checkpoint in place.
    """
    least, step = int(LEAST_SAVING * before.peak), before.trace.flops()
    chosen, refused = list(checkpointed), set[str]()
    while len(chosen) < len(checkpointed) + most:
        for name in _candidates(before, chosen, refused, least)[:ATTEMPTS]:
            after = Measured(record(job, [*chosen, name]))
            saved = before.peak - after.peak
            if saved >= max(least, 1):
                yield name, saved, (after.trace.flops() - before.trace.flops()) / step, after.peak
                chosen.append(name)
                before = after
                break
            refused.add(name)
        else:
            return


def _candidates(measured: Measured, chosen: Sequence[str], refused: set[str], least: int) -> list[str]:
    """Return submodules whose activations exist at the peak, the most bytes per operation first."""
    trace = measured.trace
    spans = _spans(trace)
    saved = _saved(trace)
    floor = LEAST_COST * trace.flops()
    score: dict[tuple[int, int], tuple[float, str]] = {}
    for name, size in saved.items():
        is_free = not any(is_within(name, other) or is_within(other, name) for other in chosen)
        is_possible = name in trace.outputs and name not in trace.changes_input and name not in refused
        gain = measured.peak - spans[name].peak_without(measured.live, size) if is_free and is_possible else 0
        if gain >= least:
            # Of submodules that wrap one another, the outermost.
            score.setdefault((gain, spans[name].flops), (-gain / (spans[name].flops + floor), name))
    return [name for _, name in sorted(score.values())]


@dataclass
class _Span:
    """The ops between the forward and the backward pass of a submodule."""

    flops: int = 0
    """The floating-point operations of the forward pass."""
    start: int = 0
    end: int | None = None

    def peak_without(self, live: npt.NDArray[np.int64], size: int) -> int:
        """Return the peak of the step if some bytes do not exist during the span."""
        reduced = live.copy()
        reduced[self.start : self.end] -= size
        return int(reduced.max())


def _spans(trace: Trace) -> defaultdict[str, _Span]:
    """Return the span of each submodule; recomputation takes place at its end, when its activations exist as before."""
    spans: defaultdict[str, _Span] = defaultdict(_Span)
    start = trace.forward_ends[0]
    for place, op in enumerate(trace.ops[:start]):
        for name in _ancestors(op.module):
            spans[name].flops += op.flops
            spans[name].start = place + 1
    for place, op in enumerate(trace.ops[start:], start):
        for name in _ancestors(op.module):
            if spans[name].end is None:
                spans[name].end = place
    return spans


def _saved(trace: Trace) -> defaultdict[str, int]:
    """Return the bytes that the forward pass of each submodule leaves for the backward pass, without its results."""
    saved: defaultdict[str, int] = defaultdict(int)
    start = trace.forward_ends[0]
    for number, storage in enumerate(trace.storages):
        if storage.role == INTERMEDIATE and storage.born < start < storage.end:
            for name in _ancestors(storage.module):
                if number not in trace.outputs.get(name, ()):
                    saved[name] += storage.bytes
    return saved


def _ancestors(module: str) -> Iterator[str]:
    """Yield the names of a submodule and of those that contain it, the outermost first, without the whole module."""
    parts = module.split(".") if module else []
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])
