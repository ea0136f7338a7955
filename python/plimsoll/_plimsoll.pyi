from typing import Any, final

import numpy as np
import numpy.typing as npt

__all__: list[str]
__version__: str

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
