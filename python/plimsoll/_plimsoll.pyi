from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from ._step_trace import Op, Storage

__all__: list[str]
__version__: str

def command_line(program: str | PathLike[str], arguments: Sequence[str]) -> int: ...

@final
class Budget:
    def __new__(cls, limit: int, *, of_process: bool = False) -> Budget: ...
    @property
    def limit(self) -> int: ...
    @property
    def used(self) -> int: ...
    @property
    def free(self) -> int: ...
    @property
    def peak(self) -> int: ...
    def holders(self) -> list[tuple[str, int, int]]: ...
    def reserve(self, holder: str, bytes: int) -> Reservation: ...

@final
class Reservation: ...

_Mask = npt.NDArray[Any]
_Spacing = tuple[float, float, float]

def transform_distances(
    mask: _Mask,
    spacing: _Spacing,
    rank: int,
    distance: str,
    squared: bool,
    black_border: bool,
    distances: npt.NDArray[np.float32],
    indices: npt.NDArray[np.int32] | None = None,
    budget: Budget | None = None,
    threads: int | None = None,
) -> None: ...
def connected_components(
    mask: _Mask,
    rank: int,
    connectivity: int,
    same_label: bool,
    labels: npt.NDArray[np.uint32],
    budget: Budget | None = None,
    threads: int | None = None,
) -> int: ...
def largest_component(
    mask: _Mask,
    rank: int,
    connectivity: int,
    out: npt.NDArray[np.bool_],
    budget: Budget | None = None,
    threads: int | None = None,
) -> None: ...
def fill_holes(
    mask: _Mask,
    rank: int,
    connectivity: int,
    out: npt.NDArray[np.bool_],
    budget: Budget | None = None,
    threads: int | None = None,
) -> None: ...
def skeletonize(
    mask: _Mask,
    rank: int,
    keep_topology: bool,
    dilations: int,
    out: npt.NDArray[np.bool_],
    budget: Budget | None = None,
    threads: int | None = None,
) -> None: ...
def betti_numbers(
    mask: _Mask, connectivity: int, budget: Budget | None = None, threads: int | None = None
) -> tuple[int, int, int]: ...
def measure_surfaces(
    prediction: npt.NDArray[np.uint8],
    reference: npt.NDArray[np.uint8],
    spacing: _Spacing,
    definition: str,
    tolerance: float,
    budget: Budget | None = None,
    threads: int | None = None,
) -> tuple[float, float, float, float, float, float]: ...
def score(
    prediction: npt.NDArray[np.uint8],
    reference: npt.NDArray[np.uint8],
    spacing: _Spacing,
    labels: list[int],
    metrics: list[str],
    definition: str,
    tolerance: float,
    ignore: int | None,
    budget: Budget | None = None,
    threads: int | None = None,
) -> dict[int, dict[str, float | None]]: ...
def run_job(name: str, arguments: str, observer: Callable[[str], object] | None = None) -> str: ...
def launched_rank() -> int | None: ...
def close_ranks(has_failed: bool) -> None: ...
def step_memory(
    storages: list[Storage], operations: list[Op], backward_starts: list[int]
) -> tuple[list[int], int, int, list[int]]: ...
def plan_step(
    storages: list[Storage], operations: list[Op], backward_starts: list[int]
) -> tuple[int, list[tuple[int, float, int]]]: ...
def parse_bytes(text: str) -> int: ...
def unlimited_holders() -> list[tuple[str, int, int]]: ...

@final
class WindowSums:
    def __new__(
        cls,
        image: tuple[int, int, int],
        window: tuple[int, int, int],
        overlap: tuple[float, float, float],
        sigma_scale: tuple[float, float, float] | None,
        outputs: int,
        *,
        logits: bool = False,
        half: bool = False,
        budget: Budget | None = None,
        threads: int | None = None,
    ) -> WindowSums: ...
    @property
    def windows(self) -> int: ...
    @property
    def strips(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def label_bytes(self) -> int: ...
    def starts(self, count: int) -> list[tuple[int, int, int]]: ...
    def add(self, logits: npt.NDArray[np.float32], output: npt.NDArray[Any]) -> None: ...

_Path = str | PathLike[str]
_Progress = Callable[[int, int], object]
_Shape = tuple[int, int, int]

@final
class Model:
    def __new__(
        cls,
        path: _Path,
        *,
        folds: list[str],
        checkpoint: str | None,
        step: float,
        gaussian: bool,
        mirror: bool | None,
        window_batch: int,
        threads: int | None,
        device: str,
        vram: int | None,
        postprocessing: bool,
    ) -> Model: ...
    def description(self) -> str: ...
    @property
    def is_wide(self) -> bool: ...
    @property
    def file_ending(self) -> str: ...
    def cases(self, path: _Path) -> list[tuple[str, list[Path]]]: ...
    def close(self) -> None: ...
    def plan_array(
        self,
        shape: _Shape,
        affine: tuple[float, ...],
        element: str,
        *,
        ram: int | None = None,
        budget: Budget | None = None,
    ) -> str: ...
    def plan_files(
        self,
        paths: Sequence[_Path],
        *,
        probabilities: bool = False,
        ram: int | None = None,
        budget: Budget | None = None,
    ) -> str: ...
    def shape_of_files(self, paths: Sequence[_Path]) -> _Shape: ...
    def predict_array(
        self,
        image: tuple[_Shape, tuple[float, ...], str, list[npt.NDArray[Any]]],
        labels: npt.NDArray[Any],
        *,
        probabilities: _Path | None = None,
        ram: int | None = None,
        budget: Budget | None = None,
        progress: _Progress | None = None,
    ) -> None: ...
    def predict_files(
        self,
        paths: Sequence[_Path],
        labels: npt.NDArray[Any],
        *,
        probabilities: _Path | None = None,
        ram: int | None = None,
        budget: Budget | None = None,
        progress: _Progress | None = None,
    ) -> None: ...
    def predict_to_file(
        self,
        paths: Sequence[_Path],
        output: _Path,
        *,
        probabilities: _Path | None = None,
        ram: int | None = None,
        budget: Budget | None = None,
        progress: _Progress | None = None,
    ) -> None: ...
    def predict_folder(
        self,
        input: _Path,
        output: _Path,
        *,
        probabilities: bool,
        overwrite: bool,
        earlier: _Path | None = None,
        part: str | None = None,
        ram: int | None = None,
        progress: _Progress | None = None,
    ) -> tuple[str, list[str]]: ...

@final
class InteractiveSession:
    def __new__(
        cls,
        path: _Path,
        *,
        fold: str | None,
        auto_zoom: bool,
        threads: int | None,
        device: str,
        vram: int | None,
        ram: int | None = None,
        budget: Budget | None = None,
    ) -> InteractiveSession: ...
    def description(self) -> str: ...
    def plan(self, shape: _Shape) -> str: ...
    def set_image(self, shape: _Shape, element: str, voxels: npt.NDArray[Any]) -> str: ...
    def set_auto_zoom(self, auto_zoom: bool) -> None: ...
    def add_point(self, at: _Shape, include: bool) -> None: ...
    def add_box(self, start: _Shape, end: _Shape, include: bool) -> None: ...
    def add_mask(self, lasso: bool, start: _Shape, shape: _Shape, voxels: npt.NDArray[Any], include: bool) -> None: ...
    def add_initial_segmentation(self, voxels: npt.NDArray[Any]) -> None: ...
    def predict(self, *, progress: _Progress | None = None) -> tuple[_Shape, _Shape] | None: ...
    def undo(self) -> bool: ...
    def reset(self) -> None: ...
    def prompts(self) -> int: ...
    def shape(self) -> _Shape | None: ...
    def write_segmentation(self, to: npt.NDArray[Any]) -> None: ...
    def close(self) -> None: ...

def segment(
    tasks: list[str],
    input: _Path,
    output: _Path,
    *,
    one_file: bool,
    mode: str,
    subset: list[str],
    body_seg: bool,
    robust_crop: bool,
    by_logits: bool,
    small: bool,
    remove_small_blobs: float | None,
    derived: bool,
    statistics: bool,
    incomplete: bool,
    report: bool,
    preview: bool,
    dicom: str,
    weights: _Path,
    overwrite: bool,
    part: str | None,
    device: str,
    vram: int | None,
    threads: int | None,
    ram: int | None,
    progress: _Progress | None = None,
) -> tuple[str, list[str]]: ...
def segmentation_tasks() -> list[tuple[str, list[str]]]: ...
def import_models(archive: _Path, to: _Path) -> list[Path]: ...
def write_image(
    path: _Path, shape: _Shape, affine: tuple[float, ...], element: str, voxels: npt.NDArray[Any]
) -> None: ...
def image_shape(path: _Path) -> _Shape: ...
def read_labels(path: _Path, labels: npt.NDArray[Any]) -> None: ...

_Images = npt.NDArray[np.float32]
_Labels = npt.NDArray[np.uint8] | npt.NDArray[np.int64] | npt.NDArray[np.float32]

@final
class LentBatch: ...

@final
class PatchStream:
    def __new__(
        cls,
        *,
        place: str,
        listed: str | None,
        patch_size: list[int],
        batch_size: int,
        spacing: str | None,
        augmentation: bool | str,
        oversample_foreground: float | None,
        images: str | None,
        seed: int,
        section: str,
        fold: int | None,
        channels: list[str] | None,
        labels: dict[str, int] | None,
        allow_outside: bool,
        skip_bad_cases: bool,
        iterations_per_epoch: int | None,
        is_endless: bool,
        prefetch: int,
        wide_labels: bool | None,
        cache: bool,
        budget: Budget,
        threads: int,
    ) -> PatchStream: ...
    @property
    def warnings(self) -> list[str]: ...
    def facts(self) -> tuple[list[str], list[str], list[str], dict[str, int], list[float]]: ...
    def batches(self) -> int | None: ...
    def begin(self) -> int: ...
    def next(self, epoch: int) -> tuple[_Images, _Labels, list[str]] | None: ...
    def state(self) -> str: ...
    def restore(self, state: str) -> None: ...
    def close(self) -> None: ...
