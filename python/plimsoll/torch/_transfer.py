"""Functions of host volumes applied to the volumes of a tensor on any device.

Volumes of processor tensors are read and written where they are. Those of GPU tensors pass through pinned memory in
chunks: while the processor works on one chunk, the next one is copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

CHUNK_BYTES = 8 << 20
"""The largest size of a chunk of several volumes; a chunk has at least one volume."""

Index = tuple[int, ...]


def map_volumes(
    values: Tensor,
    axes: int,
    mask_of: Callable[[Tensor], Tensor],
    write: Callable[[Tensor, Tensor], None],
    dtype: torch.dtype,
) -> Tensor:
    """Return a new tensor of the shape of `values` with the results of a function of masks.

    Parameters
    ----------
    values : Tensor
        The volumes: the last `axes` axes.
    axes : int
        The number of axes of a volume.
    mask_of : callable
        Returns the mask of a volume on its device, as booleans or bytes.
    write : callable
        Writes the result of a mask to the second tensor. Both are in host memory.
    dtype : torch.dtype
        The type of the results.
    """
    result = torch.empty(values.shape, dtype=dtype, device=values.device)
    if result.numel() == 0:
        return result
    indices = list(itertools.product(*(range(extent) for extent in values.shape[: values.dim() - axes])))
    if values.device.type == "cpu":
        for index in indices:
            write(mask_of(values[index]), result[index])
    else:
        map_in_chunks(values, result, indices, mask_of, write)
    return result


def map_in_chunks(
    values: Tensor,
    result: Tensor,
    indices: Sequence[Index],
    mask_of: Callable[[Tensor], Tensor],
    write: Callable[[Tensor, Tensor], None],
    chunk_bytes: int = CHUNK_BYTES,
) -> None:
    """Write the results of the volumes with these indices through host memory, chunk by chunk."""
    shape = result[indices[0]].shape
    bytes_of_volume = shape.numel() * (1 + result.element_size())
    count = max(1, min(len(indices), chunk_bytes // bytes_of_volume))
    chunks = [indices[first : first + count] for first in range(0, len(indices), count)]
    stages = [Stage(count, shape, result.dtype, values.device) for _ in chunks[:2]]

    def load(number: int) -> None:
        stages[number % 2].load([mask_of(values[index]) for index in chunks[number]])

    load(0)
    for number, chunk in enumerate(chunks):
        if number + 1 < len(chunks):
            load(number + 1)
        stages[number % 2].apply(write, [result[index] for index in chunk])


class Stage:
    """Host memory for the masks and the results of a chunk, pinned if the device is a GPU of CUDA.

    All copies are in the order of the device's current stream. The event marks the last one of this stage.
    """

    def __init__(self, count: int, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        is_cuda = device.type == "cuda"
        self._masks = torch.empty((count, *shape), dtype=torch.bool, pin_memory=is_cuda)
        self._results = torch.empty((count, *shape), dtype=dtype, pin_memory=is_cuda)
        self._device = device
        new_event: Any = torch.cuda.Event
        self._copied = new_event() if is_cuda else None

    def load(self, masks: Sequence[Tensor]) -> None:
        """Begin to copy masks from the device, after the last copy to it."""
        self._wait()
        for host, mask in zip(self._masks, masks, strict=False):
            host.copy_(mask, non_blocking=self._copied is not None)
        self._mark()

    def apply(self, write: Callable[[Tensor, Tensor], None], targets: Sequence[Tensor]) -> None:
        """Compute the results of the loaded masks, and begin to copy them to the device."""
        self._wait()
        for mask, host, target in zip(self._masks, self._results, targets, strict=False):
            write(mask, host)
            target.copy_(host, non_blocking=self._copied is not None)
        self._mark()

    def _mark(self) -> None:
        if self._copied is not None:
            self._copied.record(torch.cuda.current_stream(self._device))

    def _wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()
