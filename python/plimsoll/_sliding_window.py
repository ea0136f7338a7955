"""Sliding windows of any function, whose logits are summed in a ring of planes."""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from . import _plimsoll
from ._arrays import ledger_of
from ._memory import Budget

Padding = Literal["constant", "reflect", "replicate", "circular"]

_PADDING = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def sliding_window(
    image: Any,
    function: Callable[..., Any],
    roi_size: int | Sequence[int | None],
    sw_batch_size: int = 1,
    overlap: float | Sequence[float] = 0.25,
    mode: Literal["constant", "gaussian"] = "constant",
    sigma_scale: float | Sequence[float] = 0.125,
    padding_mode: Padding = "constant",
    cval: float = 0.0,
    *,
    output: Literal["labels", "logits"] = "labels",
    sw_device: Any = None,
    with_coord: bool = False,
    progress: bool = False,
    sum_dtype: Literal["float32", "float16"] = "float32",
    budget: Budget | str | int | None = None,
    threads: int | None = None,
) -> Any:
    """Run a function on the windows of an image and decide labels from the mean of its output.

    The windows, their weights and the padding follow `monai.inferers.sliding_window_inference`. Logits are summed
    for as many planes as windows still touch: with ``output="labels"`` the labels of a plane are decided when its last
    window is done, and the logits of the whole image never exist. With a low `budget` the image is passed through in
    strips, and windows on their borders are computed for both sides.

    Parameters
    ----------
    image : torch.Tensor, monai.data.MetaTensor or numpy.ndarray
        The image ``(N, C, ...)`` or ``(C, ...)`` with two or three spatial axes.
    function : callable
        A function of windows ``(n, C, *roi_size)`` that returns logits ``(n, K, *roi_size)``, such as a
        `torch.nn.Module` in evaluation mode. It gets tensors if the image is a tensor, and arrays if it is an array,
        without gradients. They are overwritten by the next windows. It is first called with a single window.
    roi_size : int or sequence of int
        The extent of a window. An element that is None or not positive is the extent of the image. An int is used for
        all spatial axes of an image ``(N, C, ...)``.
    sw_batch_size : int
        The number of windows that the function gets at a time.
    overlap : float or sequence of float
        The share of a window that the next one covers too, from 0 to less than 1.
    mode : {"constant", "gaussian"}
        The weights of the voxels of a window: all alike, or a Gaussian around its middle.
    sigma_scale : float or sequence of float
        The standard deviation of the Gaussian, as a share of the window.
    padding_mode : {"constant", "reflect", "replicate", "circular"}
        The values around an image that is smaller than a window.
    cval : float
        The value of constant padding.
    output : {"labels", "logits"}
        The result: the index of the largest mean logit, or all mean logits in single precision.
    sw_device : torch.device or str, optional
        The device of windows; by default the image's.
    with_coord : bool
        Pass the slices of each window as the second argument of the function.
    progress : bool
        Show a progress bar of tqdm.
    sum_dtype : {"float32", "float16"}
        The type in which sums are stored. Half precision halves their memory; labels change only where the means of two
        classes differ by less than about a thousandth of their size.
    budget : Budget, str or int, optional
        The limit of the memory of sums and of one batch of windows with its logits. Memory that the function takes
        itself is not counted.
    threads : int, optional
        The number of threads that sum logits; all processors by default.

    Returns
    -------
    torch.Tensor, monai.data.MetaTensor or numpy.ndarray
        Labels ``(N, ...)``, as ``logits.argmax(1)``, or logits ``(N, K, ...)``; without the first axis for an image
        ``(C, ...)``. Labels of arrays are of type uint8, or uint16 from 256 classes on; of tensors uint8, int16 or
        int32. The result is in CPU memory.

    Raises
    ------
    OverLimit
        If the budget has no room for the narrowest strips.
    Error
        If the function returns a number that is not finite.
    ValueError
        If an argument is out of bounds, or the function returns another shape.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.random.default_rng(0).random((1, 20, 30, 40), np.float32)
    >>> labels = sliding_window(image, lambda windows: np.concatenate([windows, 1 - windows], 1), (16, 16, 16))
    >>> labels.shape, labels.dtype
    ((20, 30, 40), dtype('uint8'))
    """
    layout = _Layout(image, roi_size)
    ledger = ledger_of(Budget(budget) if isinstance(budget, (str, int)) else budget)
    if isinstance(sw_batch_size, bool) or not isinstance(sw_batch_size, int) or sw_batch_size < 1:
        raise ValueError(f"sw_batch_size is {sw_batch_size!r}; it must be at least 1")
    if output not in ("labels", "logits"):
        raise ValueError(f"output is {output!r}; it must be 'labels' or 'logits'")
    if sum_dtype not in ("float32", "float16"):
        raise ValueError(f"sum_dtype is {sum_dtype!r}; it must be 'float32' or 'float16'")
    if not callable(function):
        raise TypeError("function is not callable")
    mode_name = str(getattr(mode, "value", mode)).lower()
    if mode_name not in ("constant", "gaussian"):
        raise ValueError(f"mode is {mode!r}; it must be 'constant' or 'gaussian'")
    overlaps = layout.numbers(overlap, "overlap")
    if not all(0 <= number < 1 for number in overlaps):
        raise ValueError(f"overlap is {overlap!r}; it must be at least 0 and less than 1")
    scales = layout.numbers(sigma_scale, "sigma_scale")
    if mode_name == "gaussian" and not all(0 < number < math.inf for number in scales):
        raise ValueError(f"sigma_scale is {sigma_scale!r}; it must be positive and finite")
    job = _Job(
        layout=layout,
        function=function,
        batch=sw_batch_size,
        overlaps=overlaps,
        scales=scales if mode_name == "gaussian" else None,
        padding=_Padder(layout, padding_mode, cval),
        logits=output == "logits",
        device=layout.device(sw_device),
        with_coord=with_coord,
        half=sum_dtype == "float16",
        ledger=ledger,
        threads=threads,
    )
    try:
        with _without_gradients(), _Progress(progress) as bar:
            results = [job.run(number, bar) for number in range(layout.samples)]
    finally:
        # The traceback of an error keeps this frame alive, but not what was reserved.
        job.held.clear()
    return layout.as_given(results)


def _torch() -> Any:
    return importlib.import_module("torch")


def _without_gradients() -> contextlib.AbstractContextManager[Any]:
    torch = sys.modules.get("torch")
    no_grad: contextlib.AbstractContextManager[Any] = contextlib.nullcontext() if torch is None else torch.no_grad()
    return no_grad


def _is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.is_tensor(value))


class _Layout:
    """The axes of an image."""

    def __init__(self, image: Any, roi_size: int | Sequence[int | None]) -> None:
        self.is_tensor = _is_tensor(image)
        if not self.is_tensor and not isinstance(image, np.ndarray):
            raise TypeError(f"image must be a tensor or an array, not {type(image).__name__}")
        self.given = image
        sizes = list(roi_size) if isinstance(roi_size, (Sequence, np.ndarray)) else None
        self.rank = image.ndim - 2 if sizes is None else len(sizes)
        if self.rank not in (2, 3) or image.ndim - self.rank not in (1, 2):
            shape = tuple(image.shape)
            raise ValueError(
                f"image has the shape {shape}; with roi_size={roi_size} it must be (N, C, ...) or (C, ...) with 2 or 3 "
                "spatial axes"
            )
        self.is_batched = image.ndim - self.rank == 2
        self.images = image if self.is_batched else image[None]
        if self.is_tensor and hasattr(self.images, "as_tensor"):
            self.images = self.images.as_tensor()
        self.samples, self.channels = int(self.images.shape[0]), int(self.images.shape[1])
        self.extent: tuple[int, ...] = tuple(int(size) for size in self.images.shape[2:])
        if self.samples == 0 or self.channels == 0 or 0 in self.extent:
            raise ValueError(f"image has the shape {tuple(image.shape)}, which is empty")
        sizes = sizes or [roi_size] * self.rank  # type: ignore[list-item]
        self.roi: tuple[int, ...] = tuple(map(_extent, sizes, self.extent))

    def numbers(self, value: float | Sequence[float], name: str) -> tuple[float, ...]:
        """Return a number for each spatial axis."""
        if isinstance(value, (Sequence, np.ndarray)):
            numbers = tuple(float(number) for number in value)
        else:
            numbers = (float(value),) * self.rank
        if len(numbers) != self.rank:
            raise ValueError(f"{name} has {len(numbers)} numbers, but the image has {self.rank} spatial axes")
        return numbers

    def of_three(self, values: tuple[Any, ...], fill: Any) -> tuple[Any, Any, Any]:
        """Return values for depth, height and width: an image of two axes has a depth of 1."""
        first, second, third = (fill,) * (3 - self.rank) + tuple(values)
        return first, second, third

    def device(self, asked: Any) -> Any:
        """Return the device of windows; None for arrays."""
        if not self.is_tensor:
            if asked is not None:
                raise ValueError("sw_device has no effect: image is an array; pass a tensor")
            return None
        return self.images.device if asked is None else _torch().device(asked)

    def as_given(self, results: list[np.ndarray[Any, Any]]) -> Any:
        """Return the results of all samples in the kind of the image."""
        whole = results[0][None] if len(results) == 1 else np.stack(results)
        if not self.is_batched:
            whole = whole[0]
        if not self.is_tensor:
            return whole
        if whole.dtype == np.uint16:
            whole = whole.view(np.int16) if int(whole.max()) < 1 << 15 else whole.astype(np.int32)
        tensor = _torch().from_numpy(whole)
        if hasattr(self.given, "copy_meta_from"):
            meta_tensor = type(self.given)(tensor)
            tensor = meta_tensor.copy_meta_from(self.given, copy_attr=False)
        return tensor


def _extent(size: Any, extent: int) -> int:
    if size is None:
        return extent
    number = int(size)
    if number != size:
        raise ValueError(f"roi_size has {size!r}; extents are whole numbers")
    return number if number > 0 else extent


class _Padder:
    """The values around an image that is smaller than a window."""

    def __init__(self, layout: _Layout, mode: str, cval: float) -> None:
        self.mode = str(getattr(mode, "value", mode)).lower()
        if self.mode not in _PADDING:
            raise ValueError(f"padding_mode is {mode!r}; it must be one of {', '.join(map(repr, _PADDING))}")
        self.cval = cval
        self.layout = layout
        for size, extent in zip(layout.roi, layout.extent, strict=True):
            behind = max(size - extent + 1, 0) // 2
            if (self.mode == "reflect" and behind >= extent) or (self.mode == "circular" and behind > extent):
                raise ValueError(
                    f"padding_mode {self.mode!r} cannot extend an axis of {extent} voxels to {size}; use 'replicate'"
                )

    def cut(self, sample: Any, start: tuple[int, ...], window: Any) -> None:
        """Copy the window of a sample that begins at a voxel."""
        bounds = [
            (max(at, 0), min(at + size, extent))
            for at, size, extent in zip(start, self.layout.roi, self.layout.extent, strict=True)
        ]
        inner = sample[(slice(None), *(slice(first, end) for first, end in bounds))]
        around = [
            (first - at, at + size - end) for at, size, (first, end) in zip(start, self.layout.roi, bounds, strict=True)
        ]
        if not any(map(any, around)):
            window[...] = inner
        elif self.mode == "constant":
            window[...] = self.cval
            places = (
                slice(before, before + end - first) for (before, _), (first, end) in zip(around, bounds, strict=True)
            )
            window[(slice(None), *places)] = inner
        elif self.layout.is_tensor:
            pairs = [number for pair in reversed(around) for number in pair]
            window[...] = _torch().nn.functional.pad(inner[None], pairs, mode=self.mode)[0]
        else:
            window[...] = np.pad(inner, [(0, 0), *around], mode=_PADDING[self.mode])  # type: ignore[call-overload]


class _Progress:
    """A progress bar over windows, if one is wanted."""

    def __init__(self, is_shown: bool) -> None:
        self._bar: Any = importlib.import_module("tqdm").tqdm(unit="window") if is_shown else None

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def expect(self, windows: int) -> None:
        if self._bar is not None:
            self._bar.total = (self._bar.total or 0) + windows

    def advance(self, windows: int) -> None:
        if self._bar is not None:
            self._bar.update(windows)


class _Job:
    """A function and the windows that it is run on."""

    def __init__(
        self,
        *,
        layout: _Layout,
        function: Callable[..., Any],
        batch: int,
        overlaps: tuple[float, ...],
        scales: tuple[float, ...] | None,
        padding: _Padder,
        logits: bool,
        device: Any,
        with_coord: bool,
        half: bool,
        ledger: _plimsoll.Budget | None,
        threads: int | None,
    ) -> None:
        self.layout = layout
        self.function = function
        self.batch = batch
        self.overlaps = overlaps
        self.scales = scales
        self.padding = padding
        self.logits = logits
        self.device = device
        self.with_coord = with_coord
        self.half = half
        self.ledger = ledger
        self.threads = threads
        self.outputs: int | None = None
        self.held: list[object] = []
        self.windows = self._buffer()

    def _reserve(self, holder: str, nbytes: int) -> None:
        if self.ledger is not None:
            self.held.append(self.ledger.reserve(holder, nbytes))

    def _buffer(self) -> Any:
        """Return the memory of a batch of windows."""
        layout = self.layout
        shape = (self.batch, layout.channels, *layout.roi)
        itemsize = layout.images.element_size() if layout.is_tensor else layout.images.dtype.itemsize
        if not layout.is_tensor or self.device.type == "cpu":
            self._reserve("windows", math.prod(shape) * itemsize)
        if layout.is_tensor:
            return _torch().empty(shape, dtype=layout.images.dtype, device=self.device)
        return np.empty(shape, layout.images.dtype)

    def run(self, number: int, bar: _Progress) -> np.ndarray[Any, Any]:
        """Return the labels or the logits of a sample."""
        layout = self.layout
        sample = layout.images[number]
        # The first window is the same however the image is passed through; its output tells the number of classes.
        first = tuple(-(max(size - extent, 0) // 2) for size, extent in zip(layout.roi, layout.extent, strict=True))
        logits = self._call(number, sample, [layout.of_three(first, 0)])
        sums = self._sums(logits.shape[1])
        out = self._output(sums, logits.shape[1])
        places = out.reshape(out.shape[: out.ndim - layout.rank] + layout.of_three(layout.extent, 1))
        bar.expect(sums.windows)
        starts = sums.starts(1)
        try:
            if starts != [layout.of_three(first, 0)]:
                logits = self._call(number, sample, starts)
            while starts:
                sums.add(logits, places)
                bar.advance(len(starts))
                starts = sums.starts(self.batch)
                if starts:
                    logits = self._call(number, sample, starts)
        finally:
            del sums
        return out

    def _sums(self, outputs: int) -> _plimsoll.WindowSums:
        layout = self.layout
        return _plimsoll.WindowSums(
            layout.of_three(layout.extent, 1),
            layout.of_three(layout.roi, 1),
            layout.of_three(self.overlaps, 0.0),
            # Along an axis of one voxel, the Gaussian is 1 whatever its width is.
            None if self.scales is None else layout.of_three(self.scales, 1.0),
            outputs,
            logits=self.logits,
            half=self.half,
            budget=self.ledger,
            threads=self.threads,
        )

    def _output(self, sums: _plimsoll.WindowSums, outputs: int) -> np.ndarray[Any, Any]:
        extent = self.layout.extent
        if self.logits:
            return np.empty((outputs, *extent), np.float32)
        return np.empty(extent, np.uint8 if sums.label_bytes == 1 else np.uint16)

    def _call(
        self, number: int, sample: Any, starts: list[tuple[int, int, int]]
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Run the function on windows and return its output as an array of five axes."""
        layout = self.layout
        windows = self.windows[: len(starts)]
        for window, start in zip(windows, starts, strict=True):
            self.padding.cut(sample, start[3 - layout.rank :], window)
        if self.with_coord:
            result = self.function(windows, list(self._coordinates(number, starts)))
        else:
            result = self.function(windows)
        if not _is_tensor(result) and not isinstance(result, np.ndarray):
            raise TypeError(
                f"function returned {type(result).__name__}; it must return a tensor or an array, for example "
                "lambda windows: network(windows)[0]"
            )
        shape = tuple(int(size) for size in result.shape)
        expected = (len(starts), self.outputs or "K", *layout.roi)
        is_expected = len(shape) == len(expected) and shape[0] == len(starts) and shape[2:] == layout.roi
        if not is_expected or shape[1] != (self.outputs or shape[1]):
            text = ", ".join(map(str, expected))
            raise ValueError(f"function returned the shape {shape}, but must return ({text}) for {len(starts)} windows")
        if self.outputs is None:
            self._expect_outputs(shape[1], result)
        return self._as_array(result).reshape(*shape[:2], *layout.of_three(layout.roi, 1))

    def _expect_outputs(self, outputs: int, result: Any) -> None:
        """Reserve the memory of the logits of a batch."""
        if outputs == 1 and not self.logits:
            raise ValueError(
                "function returned one channel, of which argmax is always 0; pass output='logits' and compare the "
                "logits with a threshold"
            )
        self.outputs = outputs
        numbers = self.batch * outputs * math.prod(self.layout.roi)
        on_host = not _is_tensor(result) or result.device.type == "cpu"
        itemsize = result.element_size() if _is_tensor(result) else result.dtype.itemsize
        if on_host:
            self._reserve("logits of windows", numbers * itemsize)
        is_single = str(result.dtype).endswith("float32")
        is_dense = result.is_contiguous() if _is_tensor(result) else result.flags.c_contiguous
        if not (on_host and is_single and is_dense):
            self._reserve("copy of the logits of windows", numbers * 4)

    @staticmethod
    def _as_array(result: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        if _is_tensor(result):
            torch = _torch()
            tensor = result.as_tensor() if hasattr(result, "as_tensor") else result
            result = tensor.detach().to("cpu", torch.float32).contiguous().numpy()
        return np.ascontiguousarray(result, np.float32)

    def _coordinates(self, number: int, starts: list[tuple[int, int, int]]) -> Iterator[list[slice]]:
        """Return the slices of windows in the padded batch, as MONAI passes them."""
        layout = self.layout
        for start in starts:
            slices = [slice(number, number + 1), slice(None)]
            for at, size, extent in zip(start[3 - layout.rank :], layout.roi, layout.extent, strict=True):
                first = at + max(size - extent, 0) // 2
                slices.append(slice(first, first + size))
            yield slices
