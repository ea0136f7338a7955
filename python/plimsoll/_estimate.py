"""The memory of a training step of a PyTorch module, without running it."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _plimsoll

if TYPE_CHECKING:
    import torch

    from ._step_trace import Job, Trace

Device = Literal["cuda", "cpu"]
Optimizer = Literal["adam", "adamw", "adagrad", "nadam", "radam", "rmsprop", "sgd"]


class CurvePoint(NamedTuple):
    """The memory of a step in which some values are recomputed.

    Attributes
    ----------
    bytes : int
        The memory of the step.
    recomputed_flops : float
        Additional floating-point operations, as a fraction of the step's.
    recomputed_operations : int
        The number of operations that are run again.
    """

    bytes: int
    recomputed_flops: float
    recomputed_operations: int


class Checkpoint(NamedTuple):
    """A submodule to wrap in `torch.utils.checkpoint.checkpoint`.

    Attributes
    ----------
    module : str
        The name of the submodule, as `torch.nn.Module.get_submodule` takes it.
    saved : int
        The bytes by which the peak falls if this submodule is checkpointed in addition to those before it in the list.
    recomputed_flops : float
        The additional floating-point operations, as a fraction of the step's.
    peak : int
        The peak of the step with this checkpoint and those before it.
    """

    module: str
    saved: int
    recomputed_flops: float
    peak: int


@dataclass(frozen=True)
class Estimate:
    """The memory of a training step, in bytes.

    Attributes
    ----------
    parameters, buffers : int
        Parameters and buffers of the module.
    gradients : int
        Gradients of all parameters.
    optimizer : int
        The optimizer's state.
    inputs : int
        The batch and its target.
    activations : int
        Results of the forward pass that exist when the backward pass begins.
    peak : int
        The most tensor memory of a step of eager PyTorch, between any two of its ops, with everything above that exists
        at that time. Workspaces inside kernels are not counted; on the CPU they added 0 to 17 % to the total of the
        allocator.
    peak_at : str
        The op of the peak, its pass and its submodule.
    at_peak : dict of str to int
        The parts of the peak: ``parameters``, ``buffers``, ``optimizer``, ``inputs``, ``gradients``, ``activations``
        and ``temporaries``.
    lower_bound : int
        The memory of the same step if each tensor is freed after its last use. No allocator needs less for this order
        of ops.
    least : int
        The least memory that was found with recomputation: the last point of the curve.
    curve : tuple of CurvePoint
        Memory against recomputation, from the fastest to the smallest.
    checkpoints : tuple of Checkpoint
        The submodules to checkpoint, in this order. Each saves the most bytes per additional operation; its figures are
        from a trace with the checkpoint in place.
    flops : int
        Floating-point operations of the step. Ops other than convolutions, matrix products and attention count one per
        element.
    operations : int
        The number of ops of the step.
    unseen : tuple of str
        The memory that is not in these figures.
    """

    parameters: int
    buffers: int
    gradients: int
    optimizer: int
    inputs: int
    activations: int
    peak: int
    peak_at: str
    at_peak: dict[str, int]
    lower_bound: int
    least: int
    curve: tuple[CurvePoint, ...]
    checkpoints: tuple[Checkpoint, ...]
    flops: int
    operations: int
    unseen: tuple[str, ...]
    module: str = field(default="module", repr=False)

    def __str__(self) -> str:
        lines = [f"Memory of a training step of {self.module}"]
        lines += _aligned(self._figures())
        lines += ["", f"At the peak ({self.peak_at})"]
        lines += _aligned([(name, text_of(size), "") for name, size in self._parts()])
        if self.checkpoints:
            lines += ["", "Checkpoints, each in addition to those above it"]
            lines += _aligned(
                [(row.module, f"-{text_of(row.saved)}", _checkpoint_note(row)) for row in self.checkpoints]
            )
        lines += ["", "Memory against recomputation"]
        lines += _aligned([(text_of(point.bytes), _percent(point.recomputed_flops), "") for point in self.curve])
        lines += ["", "Not included"]
        lines += [f"  - {text}" for text in self.unseen]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<h4>Memory of a training step of {html.escape(self.module)}</h4>", _table(self._figures(), ())]
        parts += [f"<p>At the peak ({html.escape(self.peak_at)}):</p>"]
        parts += [_table([(name, text_of(size), "") for name, size in self._parts()], ())]
        if self.checkpoints:
            rows = [(row.module, text_of(row.saved), _checkpoint_note(row)) for row in self.checkpoints]
            parts += [_table(rows, ("checkpoint, in addition to those above it", "saves", ""))]
        parts += [_drawn(self.curve, self.peak), "<p>Not included:</p><ul>"]
        parts += [f"<li>{html.escape(text)}</li>" for text in self.unseen]
        return "".join(parts) + "</ul>"

    def _figures(self) -> list[tuple[str, str, str]]:
        last = self.curve[-1] if self.curve else None
        cost = f"{_percent(last.recomputed_flops)} operations" if last else ""
        return [
            ("parameters", text_of(self.parameters + self.buffers), "with buffers"),
            ("gradients", text_of(self.gradients), ""),
            ("optimizer", text_of(self.optimizer), ""),
            ("inputs", text_of(self.inputs), ""),
            ("activations", text_of(self.activations), "at the start of the backward pass"),
            ("peak", text_of(self.peak), "tensor memory of eager PyTorch"),
            ("lower bound", text_of(self.lower_bound), "each tensor freed after its last use"),
            ("least", text_of(self.least), f"with recomputation, {cost}"),
        ]

    def _parts(self) -> list[tuple[str, int]]:
        return [(name, size) for name, size in self.at_peak.items() if size]


def estimate(
    module: torch.nn.Module,
    example_shape: Sequence[int] | torch.Tensor | Sequence[Sequence[int] | torch.Tensor],
    *,
    optimizer: Optimizer | torch.optim.Optimizer | Callable[[Iterable[Any]], torch.optim.Optimizer] | None = "adamw",
    loss: Callable[..., Any] | None = None,
    target: Sequence[int] | torch.Tensor | None = None,
    dtype: torch.dtype | str | None = None,
    autocast: torch.dtype | str | None = None,
    micro_batch: int | None = None,
    device: Device = "cuda",
    checkpoint: Sequence[str] = (),
    checkpoints: int = 5,
) -> Estimate:
    """Estimate the memory that a training step of a module needs.

    The step is traced with tensors that have shapes and no data. It needs neither a GPU nor memory for these tensors,
    and the module is not changed.

    Parameters
    ----------
    module : torch.nn.Module
        The network, on any device. A module in evaluation mode is estimated in training mode.
    example_shape : sequence of int, torch.Tensor, or a sequence of these
        The shape of a batch of float32, such as ``(2, 1, 128, 128, 128)``. Or a tensor with the shape and type, also on
        the device ``"meta"``. Or one for each input of the module.
    optimizer : str, torch.optim.Optimizer or callable, optional
        A name, an optimizer of this module, a class such as `torch.optim.AdamW`, or a function of the parameters. None
        leaves the optimizer out.
    loss : callable, optional
        A function of the module's output, and of the target if there is one. By default the mean of squares of the
        output.
    target : sequence of int or torch.Tensor, optional
        The shape of the target of the loss, or a tensor with its shape and type.
    dtype : torch.dtype or str, optional
        The type to convert parameters, buffers and inputs to, as `Module.to` does.
    autocast : torch.dtype or str, optional
        The type of `torch.autocast` around the forward pass and the loss: ``"bfloat16"`` or ``"float16"``.
    micro_batch : int, optional
        The number of samples of a forward and backward pass, if gradients of several are accumulated.
    device : {"cuda", "cpu"}, optional
        The kind of device to train on. It decides the implementations that PyTorch chooses for the optimizer and for
        dropout.
    checkpoint : sequence of str, optional
        Names of submodules that are checkpointed already.
    checkpoints : int, optional
        The most submodules to find for checkpointing. Each takes one or more traces; 0 finds none.

    Returns
    -------
    Estimate
        The parts of the memory, the peak, the least memory with recomputation, and submodules to checkpoint.

    Raises
    ------
    Error
        If the module calls an op whose result depends on data, or a custom op without a fake kernel. The op is named.
    ValueError
        If an argument has a wrong value.

    Examples
    --------
    >>> import plimsoll, torch
    >>> net = torch.nn.Sequential(torch.nn.Conv3d(1, 32, 3), torch.nn.ReLU(), torch.nn.Conv3d(32, 2, 1))
    >>> found = plimsoll.estimate(net, (2, 1, 128, 128, 128))
    >>> found.peak > found.least
    True
    """
    import torch

    from . import _checkpoints, _step_trace

    if device not in ("cuda", "cpu"):
        raise ValueError(f"device is {device!r}, but must be 'cuda' or 'cpu'")
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ValueError("module has no parameters with gradients")
    batch = _Batch.of(example_shape, target, micro_batch)
    job = _step_trace.Job(
        module=getattr(module, "_orig_mod", module),
        inputs=batch.inputs,
        target=batch.target,
        loss=loss,
        optimizer=_optimizer(optimizer),
        dtype=_dtype(dtype, "dtype"),
        autocast=_dtype(autocast, "autocast"),
        on_cuda=device == "cuda",
        passes=batch.passes,
    )
    if isinstance(checkpoints, bool) or not isinstance(checkpoints, int) or checkpoints < 0:
        raise ValueError(f"checkpoints is {checkpoints!r}, but must be a number of at least 0")
    known = dict(job.module.named_modules())
    for name in checkpoint:
        if name not in known or not name:
            raise ValueError(f"checkpoint names {name!r}, which is no submodule")
    trace = _step_trace.record(job, checkpoint)
    measured = _checkpoints.Measured(trace)
    bound, curve = _plimsoll.plan_step(trace.storages, trace.ops, trace.forward_ends)
    points = tuple(CurvePoint(*point) for point in curve)
    total = measured.totals()
    found = _checkpoints.find_checkpoints(job, checkpoint, measured, checkpoints)
    return Estimate(
        parameters=total["parameter"],
        buffers=total["buffer"],
        gradients=total["gradient"],
        optimizer=total["optimizer"],
        inputs=total["input"],
        activations=measured.activations,
        peak=measured.peak,
        peak_at=measured.place(),
        at_peak=measured.parts,
        lower_bound=bound,
        least=min([bound, *(point.bytes for point in points)]),
        curve=points,
        checkpoints=tuple(Checkpoint(*row) for row in found),
        flops=trace.flops(),
        operations=len(trace.ops),
        unseen=_unseen(job, trace),
        module=type(job.module).__name__,
    )


@dataclass
class _Batch:
    """Inputs and target of one forward pass, without data."""

    inputs: list[torch.Tensor]
    target: torch.Tensor | None
    passes: int
    """The number of forward passes of a step."""

    @classmethod
    def of(cls, example_shape: Any, target: Any, micro_batch: int | None) -> _Batch:
        tensors = _examples(example_shape)
        batch = cls(tensors, None if target is None else _example(target, "target"), 1)
        if micro_batch is None:
            return batch
        samples = tensors[0].shape[0] if tensors[0].dim() else 0
        is_number = isinstance(micro_batch, int) and not isinstance(micro_batch, bool)
        if not is_number or micro_batch < 1 or samples % micro_batch:
            raise ValueError(f"micro_batch is {micro_batch!r}, but must divide the batch of {samples} samples")

        def part(tensor: torch.Tensor) -> torch.Tensor:
            return tensor[:micro_batch] if tensor.dim() and tensor.shape[0] == samples else tensor

        batch.inputs = [part(tensor) for tensor in tensors]
        batch.target = None if batch.target is None else part(batch.target)
        batch.passes = samples // micro_batch
        return batch


def _examples(spec: Any) -> list[torch.Tensor]:
    import torch

    is_shape = isinstance(spec, Sequence) and all(isinstance(extent, int) for extent in spec)
    if isinstance(spec, torch.Tensor) or is_shape or not isinstance(spec, Sequence):
        return [_example(spec, "example_shape")]
    return [_example(item, "example_shape") for item in spec]


def _example(spec: Any, argument: str) -> torch.Tensor:
    import torch

    if isinstance(spec, torch.Tensor):
        return torch.empty_like(spec, device="meta")
    if not isinstance(spec, Sequence) or isinstance(spec, str):
        raise TypeError(f"{argument} must have shapes or tensors, not {type(spec).__name__}")
    if not spec or not all(isinstance(extent, int) and extent > 0 for extent in spec):
        raise ValueError(f"{argument} is {tuple(spec)!r}, but a shape has positive integers")
    return torch.empty(tuple(spec), device="meta")


def _dtype(value: Any, argument: str) -> torch.dtype | None:
    import torch

    names = {"bf16": "bfloat16", "fp16": "float16", "half": "float16"}
    found = getattr(torch, names.get(value, value), None) if isinstance(value, str) else value
    if value is None or (isinstance(found, torch.dtype) and found.is_floating_point):
        return found
    raise ValueError(f"{argument} is {value!r}, but must be a floating-point type such as 'bfloat16'")


def _optimizer(value: Any) -> Any:
    from ._step_trace import OPTIMIZERS

    if isinstance(value, str) and value not in OPTIMIZERS:
        raise ValueError(f"optimizer is {value!r}, but must be one of {', '.join(OPTIMIZERS)}, or an optimizer")
    return value


def _unseen(job: Job, trace: Trace) -> tuple[str, ...]:
    counts = dict.fromkeys(("convolution", "attention"), 0)
    custom: dict[str, None] = {}
    for op in trace.ops:
        for word in counts:
            counts[word] += word in op.name
        if not op.name.startswith("aten."):
            custom[op.name] = None
    library = "cuDNN" if job.on_cuda else "oneDNN"
    found = [
        f"memory that kernels use while they run, such as {library}'s workspaces ({counts['convolution']} convolutions)"
    ]
    found += [f"memory inside the custom op {name}" for name in custom]
    found += ["rounding and fragmentation of the allocator" + (", and the CUDA context" if job.on_cuda else "")]
    if job.autocast is not None and job.on_cuda:
        found += ["differences between autocast for CUDA and for CPUs; the types are those of CPUs"]
    if job.loss is None:
        found += ["your loss: pass it as `loss`; a mean of squares of the output takes its place"]
    return tuple(found)


def text_of(size: int) -> str:
    """Return a number of bytes in words."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(size) >= factor:
            return f"{size / factor:.2f} {unit}"
    return f"{size} B"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:+.1f} %"


def _checkpoint_note(row: Checkpoint) -> str:
    return f"{_percent(row.recomputed_flops)} operations, peak {text_of(row.peak)}"


def _aligned(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    first = max(len(row[0]) for row in rows) if rows else 0
    second = max(len(row[1]) for row in rows) if rows else 0
    return [f"  {name:<{first}}  {value:>{second}}  {note}".rstrip() for name, value, note in rows]


def _table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + (row(head, "th") if head else "") + "".join(row(cells, "td") for cells in rows) + "</table>"


def _drawn(curve: Sequence[CurvePoint], peak: int) -> str:
    """Return a picture of memory (upwards) against additional operations (to the right)."""
    if not curve:
        return ""
    width, height = 320, 160
    most = max(peak, max(point.bytes for point in curve))
    longest = max(point.recomputed_flops for point in curve) or 1.0
    places = [
        f"{width * point.recomputed_flops / longest:.1f},{height * (1 - point.bytes / most):.1f}" for point in curve
    ]
    top = height * (1 - peak / most)
    return (
        f'<svg width="{width + 20}" height="{height + 40}" viewBox="-10 -15 {width + 20} {height + 40}" '
        'role="img" font-size="11" fill="currentColor"><title>Memory against recomputation</title>'
        f'<rect width="{width}" height="{height}" fill="none" stroke="currentColor" opacity="0.4"/>'
        f'<line x1="0" x2="{width}" y1="{top:.1f}" y2="{top:.1f}" stroke="currentColor" stroke-dasharray="4"/>'
        f'<polyline points="{" ".join(places)}" fill="none" stroke="currentColor" stroke-width="2"/>'
        f'<text x="4" y="{top - 4:.1f}">peak of eager PyTorch: {text_of(peak)}</text>'
        f'<text x="0" y="{height + 16}">least: {text_of(curve[-1].bytes)} for {_percent(longest)} operations</text>'
        "</svg>"
    )
