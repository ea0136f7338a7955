"""Jobs on data sets: inspect, plan, train, sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ._call import Memory, PathLike, as_bytes, as_path, call, names_of, optional_path, plain
from ._errors import Error
from ._events import Callbacks
from ._plan import RunPlan
from ._ranks import rank_of
from ._run import FoldName, Run

if TYPE_CHECKING:
    import pandas

Allowed = Literal["precision", "loss-scale", "patch", "features"]
Adopted = Literal["patch", "spacing", "normalisation", "topology"]
Missing = Literal["ignore", "worst", "diagonal"]


class Inspection:
    """The inspection of a data set.

    Attributes
    ----------
    kind : {"volumes", "images"}
        Volumes with a label for each voxel, or pictures with classes.
    name : str
        The name of the data set.
    cases : int
        The number of its cases.
    labels : dict of str to int
        The classes with their values in label maps; of pictures with their numbers of images.
    problems : list of dict
        The problems of cases: ``severity``, ``case``, ``file``, ``text``, ``hint``; of pictures texts in ``text``.
    warnings : list of str
        What a user should check about the data set itself.
    fingerprint : dict or None
        Spacings, shapes, intensities and the target spacing by the rules of nnU-Net; `None` for pictures.
    numbers : dict
        All numbers, as ``plimsoll inspect --json`` prints them.
    """

    def __init__(self, result: dict[str, Any]) -> None:
        self._problem: dict[str, Any] | None = result.pop("problem")
        self.kind: Literal["volumes", "images"] = result.pop("kind")
        self.numbers = result
        self.name: str = result["name"]
        self.cases: int = result["cases"]
        pairs = result["labels"] if self.kind == "volumes" else result["classes"]
        self.labels: dict[str, int] = {name: value for name, value in pairs}
        problems = result["problems"]
        self.problems: list[dict[str, Any]] = (
            problems if self.kind == "volumes" else [{"text": problem} for problem in problems]
        )
        self.warnings: list[str] = result["warnings"]
        self.fingerprint: dict[str, Any] | None = result.get("fingerprint")

    def check(self) -> None:
        """Check that every case can be used.

        Raises
        ------
        Error
            If one cannot; the error names the first.
        """
        if self._problem is not None:
            raise Error(self._problem["message"], self._problem["remedy"])

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a table with a row for each case of volumes. Needs pandas."""
        import pandas

        cases = [] if self.fingerprint is None else self.fingerprint["cases"]
        table = pandas.json_normalize(cases)
        return table if table.empty else table.set_index("id")

    def __repr__(self) -> str:
        counts = f"{self.cases} cases, {len(self.labels)} classes, {len(self.problems)} problems"
        return f"<Inspection of {self.name}: {counts}>"


def inspect(
    dataset: PathLike,
    *,
    config: PathLike | None = None,
    allow_outside: bool = False,
    write: bool = False,
    page: PathLike | None = None,
    ram: Memory = None,
    threads: int | None = None,
    callbacks: Callbacks = None,
    progress: bool | None = None,
    **settings: Any,
) -> Inspection:
    """Inspect a data set: its layout, its classes, its geometry, and what is wrong with its cases.

    Parameters
    ----------
    dataset : path
        The data set: a folder of nnU-Net, ``raw/`` and ``seg/``, BIDS, a datalist of MONAI, a table of paths, or
        pictures in a folder for each class.
    config : path, optional
        A file of settings.
    allow_outside : bool, optional
        Let lists name files outside of the data set's folder.
    write : bool, optional
        Write a ``dataset.json`` into the folder, which must have none.
    page : path, optional
        A page that is written, with its numbers beside it.
    ram : str or int, optional
        The memory limit; by default what the machine leaves.
    threads : int, optional
        The number of cases that are read at a time.
    callbacks : callable or sequence of callables, optional
        Functions that receive the events of the job.
    progress : bool, optional
        Show progress; by default in terminals and notebooks.
    **settings
        The settings ``data``, ``labels``, ``regions`` and ``images`` of the settings file.

    Returns
    -------
    Inspection
        Cases that cannot be used are part of the result: see `Inspection.check`.

    Raises
    ------
    Error
        If the data set cannot be read.

    Examples
    --------
    >>> found = plimsoll.inspect("Dataset001_Aorta")
    >>> found.labels
    {'background': 0, 'aorta': 1}
    """
    arguments = {
        "dataset": as_path(dataset, "dataset"),
        "settings": plain(settings, ""),
        "config": optional_path(config, "config"),
        "allow_outside": allow_outside,
        "write": write,
        "page": optional_path(page, "page"),
        "ram": as_bytes(ram, "ram"),
        "threads": threads,
    }
    return Inspection(call("inspect", arguments, callbacks=callbacks, progress=progress))


def plan(
    dataset: PathLike,
    *,
    ram: Memory = None,
    threads: int | None = None,
    loader_threads: int | None = None,
    device: str = "cpu",
    vram: Memory = None,
    config: PathLike | None = None,
    allow: str | Sequence[Allowed] = (),
    skip_bad_cases: bool = False,
    allow_outside: bool = False,
    plans_from: PathLike | None = None,
    start: PathLike | None = None,
    adopt: str | Sequence[Adopted] = (),
    allow_extra: bool = False,
    new_head: bool = False,
    sum_stem: bool = False,
    upkern: bool = False,
    patches: bool = True,
    pareto: bool = False,
    explain: str | None = None,
    callbacks: Callbacks = None,
    progress: bool | None = None,
    **settings: Any,
) -> RunPlan:
    """Plan a training: how much memory each part takes, how little is enough, and how long it takes.

    Nothing is trained or written. The limit covers what Plimsoll itself holds in this process, and the code of all
    loaded libraries; it does not cover arrays and modules of Python. ``ram=plimsoll.Budget.process("8GiB")`` is what a
    limit of the whole process leaves.

    Parameters
    ----------
    dataset : path
        The data set, as for `inspect`.
    ram : str, int or Budget, optional
        The memory limit; by default what the machine leaves.
    threads : int, optional
        Threads of kernels; all processors by default.
    loader_threads : int, optional
        Threads that make batches.
    device : str, optional
        ``"cpu"``, ``"cuda:0"``, or a kind of GPU such as ``"sm_80"`` to plan for a card that this machine lacks.
    vram : str or int, optional
        The limit of the device's memory.
    config : path, optional
        A file of settings, which keyword arguments override. Without it, no file is read.
    allow : sequence of str, optional
        Changes that may be made, in this order, if the run does not fit otherwise: ``"precision"``, ``"loss-scale"``,
        ``"patch"``, ``"features"``. Each changes results.
    skip_bad_cases : bool, optional
        Leave out cases in which the inspection finds an error.
    allow_outside : bool, optional
        Let lists name files outside of the data set's folder.
    plans_from : path, optional
        A run whose patch, spacing, network and normalisation are taken where nothing else is set.
    start : path, optional
        Trained weights to start from: a ``.safetensors``, ``.pt`` or ``.pth`` file; or the folder of a run, of a model
        of nnU-Net, or of a checkpoint of nnssl with its ``adaptation_plan.json``, whose stem and encoder are adapted.
    adopt : sequence of str, optional
        Settings that are taken from the start where they are not set: ``"patch"``, ``"spacing"``, ``"normalisation"``,
        ``"topology"``.
    allow_extra, new_head, sum_stem, upkern : bool, optional
        Ignore tensors of the start that the network lacks; initialise heads at random if their shapes differ; sum the
        weights of three channels for images of one; resample kernels of another size, as MedNeXt's UpKern does.
    patches : bool, optional
        Also return the costs of smaller and larger patches.
    pareto : bool, optional
        Also search the curve of memory against time.
    explain : str, optional
        The name of a tensor to explain.
    callbacks, progress
        As for `inspect`.
    **settings
        Keys of the settings file, such as ``preset="resenc-m"``, ``patch_size=(64, 64, 64)``, ``epochs=100``,
        ``network={"net": "dynunet"}``. ``net``, ``features``, ``init_filters``, ``feature_size`` and
        ``dropout`` may be given without ``network``.

    Returns
    -------
    RunPlan
        A run that does not fit is no error here: see `RunPlan.feasible` and `RunPlan.check`.

    Raises
    ------
    Error
        If the data set cannot be read or a setting is impossible.
    ValueError
        If an argument has a wrong value.

    Examples
    --------
    >>> plan = plimsoll.plan("Dataset001_Aorta", ram="4GiB", pareto=True)
    >>> plan.minimum_ram
    402653184
    >>> [(point.ram, point.seconds_per_step) for point in plan.curve]
    """
    run = _run_arguments(
        dataset=dataset,
        settings=settings,
        config=config,
        machine=_machine(ram, threads, device, vram),
        loader_threads=loader_threads,
        allow=allow,
        skip_bad_cases=skip_bad_cases,
        allow_outside=allow_outside,
        plans_from=plans_from,
        start=_start(start, adopt, allow_extra, new_head, sum_stem, upkern),
    )
    arguments = {"run": run, "patches": patches, "pareto": pareto, "explain": explain}
    return RunPlan(call("plan", arguments, callbacks=callbacks, progress=progress))


def train(
    dataset: PathLike,
    *,
    out: PathLike,
    ram: Memory = None,
    fold: FoldName = 0,
    folds: Sequence[int] | Literal["all"] | str | None = None,
    parallel: int = 1,
    one_vs_one: bool = False,
    resume: bool = False,
    threads: int | None = None,
    loader_threads: int | None = None,
    device: str = "cpu",
    vram: Memory = None,
    config: PathLike | None = None,
    allow: str | Sequence[Allowed] = (),
    skip_bad_cases: bool = False,
    allow_outside: bool = False,
    plans_from: PathLike | None = None,
    warm: bool = False,
    accept_changed_data: bool = False,
    new_cases: Literal["include", "leave-out"] | None = None,
    start: PathLike | None = None,
    adopt: str | Sequence[Adopted] = (),
    allow_extra: bool = False,
    new_head: bool = False,
    sum_stem: bool = False,
    upkern: bool = False,
    splits: PathLike | None = None,
    skip_validation: bool = False,
    missing: Missing = "ignore",
    log_steps: bool = False,
    tensorboard: bool = False,
    openmetrics: PathLike | None = None,
    ranks: bool | None = None,
    patience: float | None = None,
    callbacks: Callbacks = None,
    progress: bool | None = None,
    **settings: Any,
) -> Run:
    """Train and validate folds of a run inside a memory limit.

    Ctrl-C ends the training after the step in progress and writes a checkpoint; ``resume=True`` continues to the same
    bits. An exception of a callback does the same, and is raised afterwards.

    If ``mpiexec``, ``mpirun`` or ``srun`` has started several processes of the script, they train one fold together,
    as ranks: each computes a part of every batch. The first shows progress, calls callbacks and validates; the others
    wait for it, and their `Run.result` is `None`.

    Parameters
    ----------
    dataset : path
        The data set, as for `inspect`.
    out : path
        The folder of the run.
    ram : str, int or Budget, optional
        The memory limit, as for `plan`.
    fold : int or "all", optional
        The fold; ``"all"`` trains and validates on all cases.
    folds : sequence of int or "all", optional
        Several folds instead of `fold`; ``"all"`` for all that there are.
    parallel : int, optional
        The number of folds that train at the same time, each with its part of the limit and of the threads.
    one_vs_one : bool, optional
        For images: train a classifier for each pair of classes, in folders of their own, whose votes `classify` counts.
        `Run.folds` names them ``"pair_0_1/fold_0"`` and so on.
    resume : bool, optional
        Continue from the last checkpoint.
    threads, loader_threads, device, vram, config, allow, skip_bad_cases, allow_outside, plans_from
        As for `plan`.
    warm : bool, optional
        Read cases into the cache before the first step.
    accept_changed_data : bool, optional
        Resume although images, labels or classes have changed.
    new_cases : {"include", "leave-out"}, optional
        The treatment of cases that were added to the data set after the run began.
    start, adopt, allow_extra, new_head, sum_stem, upkern
        As for `plan`. A run that resumes does not need the start.
    splits : path, optional
        The file of folds; by default ``splits_final.json`` of the run or the data set.
    skip_validation : bool, optional
        Do not predict and score the validation cases after the training.
    missing : {"ignore", "worst", "diagonal"}, optional
        The treatment, in means, of scores that are undefined because only one of prediction and reference has a class.
    log_steps, tensorboard : bool, optional
        Write the numbers of each step; write event files of TensorBoard.
    openmetrics : path, optional
        A text file of numbers for Prometheus.
    ranks : bool, optional
        ``True`` requires that a launcher has started several processes; ``False`` trains in this process alone. By
        default the processes of a launcher train together if there are several.
    patience : float, optional
        The seconds without progress after which a rank hangs and all ranks end: at least 1, and 30 by default. The
        same in all trainings of a script.
    callbacks : callable or sequence of callables, optional
        Functions that receive events: `EpochEnd`, `Progress`, `Planned` and `Message`.
    progress : bool, optional
        Show progress; by default in terminals and notebooks.
    **settings
        Keys of the settings file, as for `plan`.

    Returns
    -------
    Run
        The run, whose `Run.result` is the result of this training.

    Raises
    ------
    OverLimit
        If the run does not fit. The remedy lists changes that would make it fit.
    Error
        If the data set cannot be read, a file cannot be written, or the folder holds a run already.
    KeyboardInterrupt
        After Ctrl-C, when the checkpoint is written.

    Examples
    --------
    >>> run = plimsoll.train("Dataset001_Aorta", out="runs/aorta", ram="8GiB", epochs=200)
    >>> run.metrics["mean_pseudo_dice"][-1]
    0.91
    """
    run = _run_arguments(
        dataset=dataset,
        settings=settings,
        config=config,
        machine=_machine(ram, threads, device, vram),
        loader_threads=loader_threads,
        allow=allow,
        skip_bad_cases=skip_bad_cases,
        allow_outside=allow_outside,
        plans_from=plans_from,
        start=_start(start, adopt, allow_extra, new_head, sum_stem, upkern),
    )
    out = as_path(out, "out")
    if one_vs_one and folds is not None:
        raise ValueError("folds has no effect with one_vs_one, which trains one fold; pass fold")
    if one_vs_one and parallel != 1:
        raise ValueError("parallel has no effect with one_vs_one, which trains one classifier after the other")
    arguments = {
        "run": run,
        "out": out,
        "folds": _folds(fold, folds),
        "parallel": parallel,
        "one_vs_one": one_vs_one,
        "warm": warm,
        "resume": resume,
        "accept_changed_data": accept_changed_data,
        "new_cases": new_cases,
        "splits": optional_path(splits, "splits"),
        "skip_validation": skip_validation,
        "missing": missing,
        "log_steps": log_steps,
        "tensorboard": tensorboard,
        "openmetrics": optional_path(openmetrics, "openmetrics"),
        "patience": patience,
    }
    rank = rank_of(ranks)
    arguments["ranks"] = rank is not None
    # The first rank alone shows progress.
    result = call("train", arguments, callbacks=callbacks, progress=False if rank else progress)
    return Run(out, result=result)


class Sweep(NamedTuple):
    """A sweep of settings.

    Attributes
    ----------
    folder : str
        Its folder, which `compare` takes.
    plan : dict
        The memory and the time of its arms, as ``plimsoll sweep --plan --json`` prints them.
    trials : list of dict or None
        The state of each trial: ``arm``, ``seed``, ``fold``, ``state`` and ``mean_dice``, ``error`` or others; `None`
        if the sweep was only planned.
    """

    folder: str
    plan: Mapping[str, Any]
    trials: list[dict[str, Any]] | None

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The trials that failed."""
        return [trial for trial in self.trials or [] if trial["state"] == "failed"]

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a table with a row for each trial. Needs pandas."""
        import pandas

        return pandas.DataFrame(self.trials or [])


def sweep(
    request: PathLike | Mapping[str, Any],
    dataset: PathLike | None = None,
    *,
    out: PathLike,
    ram: Memory = None,
    plan: bool = False,
    resume: bool = False,
    only: str | Sequence[str] = (),
    parallel: int = 1,
    threads: int | None = None,
    loader_threads: int | None = None,
    device: str = "cpu",
    vram: Memory = None,
    allow: str | Sequence[Allowed] = (),
    skip_bad_cases: bool = False,
    allow_outside: bool = False,
    warm: bool = False,
    skip_validation: bool = False,
    missing: Missing = "ignore",
    log_steps: bool = False,
    tensorboard: bool = False,
    callbacks: Callbacks = None,
    progress: bool | None = None,
) -> Sweep:
    """Train a choice of settings with several seeds on several folds.

    Parameters
    ----------
    request : path or dict
        The file of the sweep, or its keys: ``grid`` or ``arm``, ``settings``, ``seeds``, ``folds``.
    dataset : path, optional
        The data set; by default the request's.
    out : path
        The folder of the sweep.
    plan : bool, optional
        Only plan the arms.
    only : str or sequence of str, optional
        These trials alone: ``"ARM"``, ``"ARM/SEED"`` or ``"ARM/SEED/FOLD"``.
    parallel : int, optional
        The largest number of trials that train at the same time.
    ram, resume, threads, loader_threads, device, vram, allow, skip_bad_cases, allow_outside
        As for `train`.
    warm, skip_validation, missing, log_steps, tensorboard, callbacks, progress
        As for `train`.

    Returns
    -------
    Sweep
        Failed trials are part of the result; ``resume=True`` tries them again.

    Raises
    ------
    Error
        If the request is impossible, an arm does not fit, or a file cannot be written.

    Examples
    --------
    >>> grid = {"learning_rate": [0.01, 0.001]}
    >>> plimsoll.sweep({"grid": grid, "folds": [0]}, "Dataset001_Aorta", out="sweeps/rates", ram="8GiB")
    """
    arguments = {
        "request": dict(request) if isinstance(request, Mapping) else as_path(request, "request"),
        "dataset": optional_path(dataset, "dataset"),
        "out": as_path(out, "out"),
        "plan": plan,
        "resume": resume,
        "only": names_of(only, "only"),
        "parallel": parallel,
        "machine": _machine(ram, threads, device, vram),
        "loader_threads": loader_threads,
        "allow": names_of(allow, "allow"),
        "skip_bad_cases": skip_bad_cases,
        "allow_outside": allow_outside,
        "warm": warm,
        "skip_validation": skip_validation,
        "missing": missing,
        "log_steps": log_steps,
        "tensorboard": tensorboard,
    }
    return Sweep(**call("sweep", arguments, callbacks=callbacks, progress=progress))


def write_phantoms(
    folder: PathLike,
    *,
    cases: int = 8,
    test_cases: int = 2,
    size: tuple[int, int] = (64, 96),
    outlier: bool = True,
    seed: int = 1,
) -> None:
    """Write a made-up data set of vessel trees in noise in the layout of nnU-Net, for trials without real images.

    Parameters
    ----------
    folder : path
        The folder of the data set, which must not exist or be empty.
    cases, test_cases : int, optional
        The number of cases in ``imagesTr`` and in ``imagesTs``.
    size : (int, int), optional
        The smallest and the largest number of voxels along an axis.
    outlier : bool, optional
        Give one case far larger voxels than the others.
    seed : int, optional
        The same seed gives the same files.
    """
    if not isinstance(size, Sequence) or len(size) != 2:
        raise TypeError("size must be two numbers: the smallest and the largest")
    arguments = {
        "folder": as_path(folder, "folder"),
        "cases": cases,
        "test_cases": test_cases,
        "size": list(size),
        "outlier": outlier,
        "seed": seed,
    }
    call("phantoms", arguments)


def _machine(ram: Memory, threads: int | None, device: str, vram: Memory) -> dict[str, Any]:
    return {"ram": as_bytes(ram, "ram"), "threads": threads, "device": device, "vram": as_bytes(vram, "vram")}


def _run_arguments(
    *,
    dataset: PathLike,
    settings: Mapping[str, Any],
    config: PathLike | None,
    machine: Mapping[str, Any],
    loader_threads: int | None,
    allow: str | Sequence[str],
    skip_bad_cases: bool,
    allow_outside: bool,
    plans_from: PathLike | None,
    start: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return the arguments that `plan` and `train` share."""
    return {
        "dataset": as_path(dataset, "dataset"),
        "settings": plain(settings, ""),
        "config": optional_path(config, "config"),
        "machine": machine,
        "loader_threads": loader_threads,
        "allow": names_of(allow, "allow"),
        "skip_bad_cases": skip_bad_cases,
        "allow_outside": allow_outside,
        "plans_from": optional_path(plans_from, "plans_from"),
        "start": start,
    }


def _start(
    start: PathLike | None,
    adopt: str | Sequence[str],
    allow_extra: bool,
    new_head: bool,
    sum_stem: bool,
    upkern: bool,
) -> dict[str, Any] | None:
    """Return the arguments of a start from trained weights, or `None` for random ones."""
    options = {"allow_extra": allow_extra, "new_head": new_head, "sum_stem": sum_stem, "upkern": upkern}
    adopted = names_of(adopt, "adopt")
    if start is not None:
        return {"path": as_path(start, "start"), "adopt": adopted, **options}
    for name, is_given in {"adopt": bool(adopted), **options}.items():
        if is_given:
            raise ValueError(f"{name} has no effect without start")
    return None


def _folds(fold: FoldName, folds: Sequence[int] | str | None) -> list[str] | None:
    """Return the names of the folds, or `None` for all of the splits."""
    if folds is None:
        return [str(fold)]
    if fold != 0:
        raise ValueError("fold and folds cannot both be given")
    if folds == "all":
        return None
    return names_of(folds, "folds")
