"""Records one training step of a PyTorch module on tensors without data.

The step runs as eager PyTorch runs it: forward, loss, backward, optimizer. Its tensors are fake: each op computes
shapes alone, and no storage has memory. The recorder sees each op below autograd with the storages that the op reads,
writes and allocates, and is notified when the last reference to a storage disappears. Tensors that autograd saves,
in-place ops, views and checkpoints follow from that, without a model of them.
"""

from __future__ import annotations

import bisect
import contextlib
import copy
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry

from ._errors import Error

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=True),
}
"""The optimizers that have names."""

ROLES = ("parameter", "buffer", "optimizer", "input", "gradient", "intermediate")
"""The roles of storages, in the order of their numbers in the extension module."""
PARAMETER, BUFFER, OPTIMIZER, INPUT, GRADIENT, INTERMEDIATE = range(6)

_NO_MEMORY = {"prim", "prims", "profiler"}


@dataclass
class Job:
    """A training step to be recorded."""

    module: torch.nn.Module
    inputs: Sequence[torch.Tensor]
    target: torch.Tensor | None
    loss: Callable[..., Any] | None
    optimizer: Any
    dtype: torch.dtype | None
    autocast: torch.dtype | None
    on_cuda: bool
    """Uses what PyTorch chooses on a GPU: optimizers over lists of tensors, and dropout with a mask of booleans."""
    passes: int
    """The forward and backward passes of a step. More than two need what two need."""


@dataclass
class Storage:
    """The memory of one or more tensors."""

    bytes: int
    role: int
    born: int
    """The op that allocates it."""
    end: int
    """The first op after its last reference disappeared."""
    module: str


@dataclass
class Op:
    """One op below autograd."""

    name: str
    phase: str
    module: str
    reads: list[int]
    writes: list[int]
    flops: int
    moved: int
    is_repeatable: bool


@dataclass
class Trace:
    """A recorded step."""

    storages: list[Storage] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    forward_ends: list[int] = field(default_factory=list)
    """The first op of each backward pass."""
    outputs: dict[str, set[int]] = field(default_factory=dict)
    """The storages that calls of each submodule return."""
    changes_input: set[str] = field(default_factory=set)
    """The submodules that write into their inputs."""

    def flops(self) -> int:
        """Return the floating-point operations of the step."""
        return sum(op.flops for op in self.ops)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records ops and the lifetimes of storages."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = Trace()
        self.phase = "forward"
        self.is_paused = False
        self.path: list[str] = []
        self.refused: tuple[str, str] | None = None
        self._ids: dict[int, int] = {}
        self._watches: dict[int, weakref.ref[Any]] = {}
        self._sum: tuple[int, int, int] | None = None
        self._sequence: list[int] = []
        self._paths: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        try:
            out = func(*args, **kwargs)
        except Exception:
            self.refused = self.refused or (str(func), self.caller())
            raise
        if not self.is_paused and func.namespace not in _NO_MEMORY:
            self._record(func, args, kwargs, out)
        return out

    def declare(self, tensor: torch.Tensor, role: int) -> None:
        """Give a storage a role. It exists from the first op on unless an op allocated it."""
        self.trace.storages[self._known(tensor, role, 0)].role = role

    def _number(self, tensor: torch.Tensor) -> int | None:
        return self._ids.get(tensor.untyped_storage()._cdata)

    def _known(self, tensor: torch.Tensor, role: int, born: int) -> int:
        """Return the number of a tensor's storage, which gets one if it has none."""
        memory = tensor.untyped_storage()
        key = memory._cdata
        if key not in self._ids:
            self._ids[key] = len(self.trace.storages)
            self._watches[key] = weakref.ref(memory, lambda _: self._free(key))
            self.trace.storages.append(Storage(memory.nbytes(), role, born, -1, self._module()))
        return self._ids[key]

    def _free(self, key: int) -> None:
        number = self._ids.pop(key)
        del self._watches[key]
        storage, ops = self.trace.storages[number], self.trace.ops
        storage.end = len(ops)
        if self._sum is None or self._sum[0] != number or not ops:
            return
        # Autograd adds a gradient to another in place if nothing else refers to it, except under a dispatch mode.
        _, result, key = self._sum
        self._sum = None
        self._ids[key] = number
        ops[-1].writes = [number]
        storage.end = -1
        self.trace.storages[result].bytes = 0
        self.trace.storages[result].end = len(ops)

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        module, place = self._module(), len(self.trace.ops)
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        # A new constant is read from a tensor with data, which eager PyTorch returns as it is.
        is_constant = str(func) == "aten.lift_fresh.default"
        given = [] if is_constant else tree_leaves((args, kwargs))
        operands = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
        reads = [self._known(tensor, INPUT, 0) for tensor in operands]
        written = list(_written(func, args, kwargs))
        writes = [self._known(tensor, INPUT, 0) for tensor in written]
        for tensor, number in zip(written, writes, strict=True):
            storage = self.trace.storages[number]
            storage.bytes = max(storage.bytes, tensor.untyped_storage().nbytes())
            self._note_change(storage)
        fresh = [tensor for tensor in results if self._number(tensor) is None]
        writes += [self._known(tensor, INTERMEDIATE, place) for tensor in fresh]
        if not writes:
            return
        self._sum = None
        if str(func) == "aten.add.Tensor" and self.phase == "backward" and not torch.is_grad_enabled():
            first, result = self.trace.storages[reads[0]], self.trace.storages[writes[0]]
            if len(set(reads)) == 2 and fresh and first.bytes == result.bytes:
                self._sum = (reads[0], writes[0], fresh[0].untyped_storage()._cdata)
        count = flop_registry.get(func._overloadpacket)
        flops = count(*args, **kwargs, out_val=out) if count else sum(tensor.numel() for tensor in results)
        self.trace.ops.append(
            Op(
                name=str(func),
                phase=self.phase,
                module=module,
                reads=sorted(set(reads)),
                writes=sorted(set(writes)),
                flops=int(flops),
                moved=sum(tensor.numel() * tensor.element_size() for tensor in operands + results),
                is_repeatable=torch.Tag.nondeterministic_seeded not in func.tags,
            )
        )

    def caller(self) -> str:
        """Return the part of the step that is running."""
        if self.phase != "forward":
            return "the backward pass" if self.phase == "backward" else "the optimizer"
        return f"the submodule {self.path[-1]!r}" if any(self.path) else "the module or the loss"

    def _note_change(self, storage: Storage) -> None:
        """Note the submodules that write into memory that existed before their call."""
        if storage.role in (INPUT, INTERMEDIATE) and self.phase == "forward":
            self.trace.changes_input.update(name for name in self.path if not is_within(storage.module, name))

    def _module(self) -> str:
        """Return the submodule whose call or gradient is being computed."""
        if self.phase == "forward":
            path = self.path[-1] if self.path else ""
            # The node of the op was created before the op runs.
            number = torch._C._autograd._get_sequence_nr() - 1
            if not self._sequence or number > self._sequence[-1]:
                self._sequence.append(number)
                self._paths.append(path)
            return path
        node = torch._C._current_autograd_node() if self.phase == "backward" else None
        if node is None:
            return ""
        place = bisect.bisect_left(self._sequence, node._sequence_nr())
        return self._paths[place] if place < len(self._paths) else ""

    def watch(self, module: torch.nn.Module) -> None:
        """Follow the calls of submodules."""
        for name, child in module.named_modules():
            child.register_forward_pre_hook(functools.partial(self._enter, name))
            child.register_forward_hook(functools.partial(self._leave, name), always_call=True)

    def _enter(self, name: str, *_: Any) -> None:
        self.path.append(name)

    def _leave(self, name: str, module: Any, args: Any, out: Any) -> None:
        while self.path and self.path.pop() != name:
            pass
        numbers = [self._number(leaf) for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.trace.outputs.setdefault(name, set()).update(number for number in numbers if number is not None)

    def finish(self) -> Trace:
        """Return the trace; what is still referred to lives until the last op."""
        for storage in self.trace.storages:
            if storage.end < 0:
                storage.end = len(self.trace.ops)
        self._watches.clear()
        return self.trace


@functools.cache
def _written_arguments(func: Any) -> list[tuple[int, str]]:
    arguments = func._schema.arguments
    return [
        (place, argument.name)
        for place, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    for place, name in _written_arguments(func):
        value = args[place] if place < len(args) else kwargs.get(name)
        for leaf in tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                yield leaf


def is_within(module: str, ancestor: str) -> bool:
    """Return True if a submodule is another or a part of it."""
    return not ancestor or module == ancestor or module.startswith(ancestor + ".")


class _FusedDropout(TorchFunctionMode):
    """Runs dropout as on a GPU, where one kernel saves a mask of booleans."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.dropout:
            given = dict(zip(("input", "p", "train"), args, strict=False), **kwargs)
            if given["train"] and 0 < given["p"] < 1:
                return torch.native_dropout(given["input"], given["p"], True)[0]
        return func(*args, **kwargs)


def record(job: Job, checkpointed: Sequence[str] = ()) -> Trace:
    """Record a step, with `torch.utils.checkpoint` around some submodules.

    Raises
    ------
    Error
        If an op cannot be followed without data.
    """
    recorder = _Recorder()
    with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode(False), torch.enable_grad():
        try:
            return _run(job, checkpointed, recorder)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            op, caller = recorder.refused or (str(error.func), recorder.caller())
            raise Error(
                f"{caller} calls {op}, whose result depends on the values of a tensor, and an estimate has no values",
                "estimate the module without that part, or give it a branch that depends on shapes alone",
            ) from error
        except (RuntimeError, UnsupportedOperatorException, UnsupportedFakeTensorException) as error:
            if recorder.refused is None or recorder.refused[0].startswith("aten."):
                raise
            op, caller = recorder.refused
            raise Error(
                f"{caller} calls {op}, which computes no shapes without data",
                "give the op a fake kernel with torch.library.register_fake",
            ) from error


def _run(job: Job, checkpointed: Sequence[str], recorder: _Recorder) -> Trace:
    module, memo = _without_data(job.module, job.dtype)
    if not module.training:
        module.train()
    optimizer = _make_optimizer(job, module, memo)
    for name in checkpointed:
        child = module.get_submodule(name)
        child.forward = functools.partial(checkpoint, child.forward, use_reentrant=False)
    inputs = [_like(tensor, job.dtype) for tensor in job.inputs]
    target = None if job.target is None else _like(job.target, None)
    recorder.watch(module)
    for parameter in module.parameters():
        recorder.declare(parameter, PARAMETER)
    for buffer in module.buffers():
        recorder.declare(buffer, BUFFER)
    for tensor in inputs if target is None else [*inputs, target]:
        recorder.declare(tensor, INPUT)
    with recorder:
        for _ in range(min(job.passes, 2)):
            recorder.phase = "forward"
            precision = torch.autocast("cpu", dtype=job.autocast) if job.autocast else contextlib.nullcontext()
            with precision, _FusedDropout() if job.on_cuda else contextlib.nullcontext():
                loss = _loss(job, module(*inputs), target)
            recorder.phase = "backward"
            recorder.trace.forward_ends.append(len(recorder.trace.ops))
            loss.backward()  # type: ignore[no-untyped-call]
            del loss
        recorder.phase = "optimizer"
        for parameter in module.parameters():
            if parameter.grad is not None:
                recorder.declare(parameter.grad, GRADIENT)
        if optimizer is not None:
            # The first step allocates the optimizer's state, which later steps begin with.
            recorder.is_paused = True
            optimizer.step()
            recorder.is_paused = False
            for tensor in tree_leaves(list(optimizer.state.values())):
                if isinstance(tensor, torch.Tensor):
                    recorder.declare(tensor, OPTIMIZER)
            optimizer.step()
    return recorder.finish()


def _loss(job: Job, out: Any, target: torch.Tensor | None) -> torch.Tensor:
    if job.loss is None:
        tensors = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if not tensors:
            raise ValueError("module returns no tensor that depends on its parameters")
        return torch.stack([tensor.float().square().mean() for tensor in tensors]).sum()
    loss = job.loss(out) if target is None else job.loss(out, target)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise ValueError("loss must return a tensor of one element")
    return loss


def _without_data(module: torch.nn.Module, dtype: torch.dtype | None) -> tuple[torch.nn.Module, dict[int, Any]]:
    """Return a copy of a module whose tensors have no memory, and the copy of each tensor by its identity."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        memo[id(parameter)] = torch.nn.Parameter(_like(parameter, dtype), requires_grad=parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = _like(buffer, dtype)
    for child in module.modules():
        for tensor in _tensors(list(vars(child).values())):
            memo.setdefault(id(tensor), _like(tensor, None))
    children = list(module.modules())
    for child in children:
        kind: Any = type(child)
        memo[id(child)] = kind.__new__(kind)
    for child in children:
        for name, value in vars(child).items():
            try:
                memo[id(child)].__dict__[name] = copy.deepcopy(value, memo)
            except Exception:  # noqa: BLE001, a lock, a logger or a process group, which the step shares with the module
                memo[id(child)].__dict__[name] = value
    return memo[id(module)], memo


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from _tensors(item)


def _like(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    if isinstance(tensor, (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)):
        raise ValueError("module has lazy parameters without shapes; pass an input through it first")
    dtype = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=dtype, device="cpu")


def _make_optimizer(job: Job, module: torch.nn.Module, memo: dict[int, Any]) -> torch.optim.Optimizer | None:
    make = job.optimizer
    if make is None:
        return None
    if isinstance(make, torch.optim.Optimizer):
        for tensor in _tensors(list(make.state.values())):
            memo[id(tensor)] = _like(tensor, None)
        optimizer = copy.deepcopy(make, memo)
    else:
        parameters = [tensor for tensor in module.parameters() if tensor.requires_grad]
        optimizer = OPTIMIZERS[make](parameters) if isinstance(make, str) else make(parameters)
    for group in optimizer.param_groups:
        if job.on_cuda and group.get("foreach", False) is None and not group.get("fused"):
            group["foreach"] = True
    return optimizer
