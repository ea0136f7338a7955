"""Batches of patches or of images with classes, read by Plimsoll's own threads inside a memory limit."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import torch
from torch.utils.data import IterableDataset, get_worker_info

from .. import _plimsoll
from .._call import plain
from .._errors import Error
from .._memory import Budget

Case = Mapping[str, Any]
Section = Literal["training", "validation"]

_INSTEAD = (
    "use DataLoader(patches, batch_size=None, num_workers=0), or iterate over the patches directly: they are read "
    "ahead on threads of their own"
)
# Threads beyond these wait for the disk or for the training, and each needs a batch in memory.
_MOST_THREADS = 8


class Patches(IterableDataset[dict[str, Any]]):
    """Batches of patches of images with label maps, or of whole images with classes.

    Patches are cut out of the stored images: the spacing, the augmentation and the crop are one interpolation of the
    region that a patch touches, so that no volume is ever resampled as a whole. Threads of Plimsoll read ahead; worker
    processes are not needed. The memory of threads, batches and cached volumes stays inside `budget`.

    Use it as ``DataLoader(Patches(...), batch_size=None, num_workers=0)``, or iterate over it directly. A batch is a
    dictionary:

    - ``"image"``: normalised intensities, float32, of shape (batch, channel, depth, height, width),
    - ``"label"``: labels of shape (batch, 1, depth, height, width),
    - ``"case"``: the name of the case of each sample.

    Images with a class each lie in a folder for each class, or are listed in a table. There a sample is a whole image
    of `patch_size`, prepared as `plimsoll.train` does. ``"image"`` has the shape (batch, channel, height, width), and
    ``"label"`` the numbers of the classes, int64, of shape (batch,). Where an image may have several labels, or images
    are mixed, ``"label"`` has the share of each class instead, float32, of shape (batch, class).

    The tensors are the buffers that the threads filled; nothing is copied. A buffer is filled again once no tensor uses
    it, so ``clone()`` what is kept for longer than a few steps.

    Axes are depth (inferior to superior), height (posterior to anterior) and width (left to right), whatever the
    orientation of the files: the reverse of MONAI's order after ``Orientationd(axcodes="RAS")``.

    The same data, settings and seed give the same bits for any number of threads and any budget.

    Parameters
    ----------
    dataset : path or sequence of mapping
        A folder in any layout that Plimsoll detects: nnU-Net's ``imagesTr`` and ``labelsTr``, ``raw`` and ``seg``,
        BIDS, or a folder for each case. Else a table, or the JSON of a MONAI data list. Or such a list in memory:
        ``[{"image": path, "label": path}, ...]``, where ``"image"`` may be a list with a file for each channel. Or
        images with classes: a folder for each class, in folders ``train``, ``val`` and ``test`` if they are divided, or
        a table. Images of ``test`` are in no section.
    patch_size : sequence of int
        Voxels along depth, height and width; or along height and width for slices, whose depth is 1. Images with
        classes are resized to height and width.
    batch_size : int, optional
        Samples of a batch.
    spacing : sequence of float or "native", optional
        The spacing in millimetres along depth, height and width, or along height and width to resample slices in their
        plane alone. ``"native"`` keeps each image's own. By default nnU-Net's choice for the data set. Not of images
        with classes.
    augmentation : bool or mapping, optional
        ``True`` for nnU-Net's augmentation, ``False`` for none, or values that differ from nnU-Net's, such as
        ``{"p_elastic": 0.2}``. Of images with classes ``True`` is the augmentation of `plimsoll.train`, and values are
        the keys of ``[images.augmentation]``; those that are missing are off. Validation is never augmented.
    section : {"training", "validation"}, optional
        The cases of the fold that batches are drawn from. The patches of validation are the same in each epoch.
    fold : int, optional
        The fold: of ``splits_final.json``, of ``"fold"`` in a data list, or nnU-Net's division into five; of images
        with classes five in which each class has its share. By default all cases are in both sections, unless images
        are divided into ``train`` and ``val``.
    budget : str, int or Budget, optional
        The memory limit. The cache of volumes gets what threads and batches leave of it.
    seed : int, optional
        The seed of positions and augmentation.
    iterations_per_epoch : int, "auto" or None, optional
        The batches of an iteration over the patches; ``None`` for no end. ``"auto"`` is 250, and of images with classes
        as many as it takes to have each image once.
    oversample_foreground : float, optional
        The share of samples that are centred on a voxel of the foreground, as nnU-Net's
        ``oversample_foreground_percent``; 0.33 by default. Not of images with classes.
    images : mapping, optional
        The preparation of images with classes: the keys of ``[images]`` in a file of settings, such as
        ``{"channels": 1, "clahe": 2.5, "sampling": "balanced"}``. `patch_size` and `augmentation` set the size and the
        augmentation.
    label_dtype : {torch.uint8, torch.int64}, optional
        The type of labels; by default ``torch.uint8``, and ``torch.int64`` for classes of images.
    channels : sequence of str, optional
        Names of the channels, which decide how they are normalised: ``"CT"`` is clipped to the intensities of the
        foreground, others are z-scores.
    labels : mapping of str to int, optional
        Values in label maps by name, where no description has them.
    threads : int, optional
        The number of threads; by default one for each processor, at most 8.
    prefetch : int, optional
        The batches that wait or are in use, beside those that the threads are filling.
    skip_bad_cases : bool, optional
        Leave out cases that cannot be used, with a warning, instead of raising an error.
    allow_outside : bool, optional
        Allow the files of data lists and tables to lie outside of their folder.
    cache : bool, optional
        Keep what is found about a data set in the user's cache folder, so that it is read only once.

    Raises
    ------
    OverLimit
        If the budget is too small.
    Error
        If the data set cannot be opened or a case cannot be used; the message names the case or the file.

    Examples
    --------
    >>> patches = Patches("Dataset001_Vessels", (64, 96, 96), batch_size=2, budget="2GiB", seed=1)  # doctest: +SKIP
    >>> for batch in DataLoader(patches, batch_size=None, num_workers=0):  # doctest: +SKIP
    ...     loss = criterion(model(batch["image"]), batch["label"])

    Of images with a folder for each class:

    >>> images = Patches("retina", (224, 224), batch_size=16, fold=0, budget="1GiB")  # doctest: +SKIP
    >>> batch = next(iter(images))  # doctest: +SKIP
    >>> loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])  # doctest: +SKIP
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str] | Sequence[Case],
        patch_size: Sequence[int],
        *,
        batch_size: int = 2,
        spacing: Sequence[float] | Literal["native"] | None = None,
        augmentation: bool | Mapping[str, Any] = True,
        section: Section = "training",
        fold: int | None = None,
        budget: str | int | Budget = "2GiB",
        seed: int = 0,
        iterations_per_epoch: int | Literal["auto"] | None = "auto",
        oversample_foreground: float | None = None,
        images: Mapping[str, Any] | None = None,
        label_dtype: torch.dtype | None = None,
        channels: Sequence[str] | None = None,
        labels: Mapping[str, int] | None = None,
        threads: int | None = None,
        prefetch: int = 3,
        skip_bad_cases: bool = False,
        allow_outside: bool = False,
        cache: bool = True,
    ) -> None:
        super().__init__()
        _expect_main_process()
        place, listed = _place(dataset)
        if label_dtype not in (None, torch.uint8, torch.int64):
            raise ValueError(f"label_dtype is {label_dtype}; pass torch.uint8 or torch.int64")
        if section not in ("training", "validation"):
            raise ValueError(f"section is {section!r}; pass 'training' or 'validation'")
        #: The memory limit, with its holders.
        self.budget = budget if isinstance(budget, Budget) else Budget(budget)
        self._stream = _plimsoll.PatchStream(
            place=place,
            listed=listed,
            patch_size=[_count(size, "patch_size") for size in _sequence(patch_size, "patch_size")],
            batch_size=_count(batch_size, "batch_size"),
            spacing=_spacing(spacing),
            augmentation=_augmentation(augmentation),
            oversample_foreground=_optional_number(oversample_foreground, "oversample_foreground"),
            images=_images(images),
            seed=_count(seed, "seed"),
            section=section,
            fold=None if fold is None else _count(fold, "fold"),
            channels=None if channels is None else [str(name) for name in _sequence(channels, "channels")],
            labels=None if labels is None else {str(name): _count(value, "labels") for name, value in labels.items()},
            allow_outside=bool(allow_outside) or listed is not None,
            skip_bad_cases=bool(skip_bad_cases),
            iterations_per_epoch=_iterations(iterations_per_epoch),
            is_endless=iterations_per_epoch is None,
            prefetch=_count(prefetch, "prefetch"),
            wide_labels=None if label_dtype is None else label_dtype == torch.int64,
            cache=bool(cache),
            budget=self.budget._ledger,
            threads=_threads() if threads is None else _count(threads, "threads"),
        )
        for text in self._stream.warnings:
            warnings.warn(text, stacklevel=2)
        #: The names of the cases that batches are drawn from.
        self.cases: list[str]
        #: The names of the channels.
        self.channels: list[str]
        #: The names of the classes, by their numbers.
        self.classes: list[str]
        #: The labels of batches by name.
        self.labels: dict[str, int]
        #: The spacing in millimetres, along depth, height and width, or in the plane of slices; empty for images with
        #: classes.
        self.spacing: tuple[float, ...]
        self.cases, self.channels, self.classes, self.labels, lengths = self._stream.facts()
        self.spacing = tuple(lengths)
        self._length = self._stream.batches()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the batches of an epoch.

        Each iteration continues where the last one stopped, with new patches; in validation each has the same.
        """
        _expect_main_process()
        return self._epoch()

    def _epoch(self) -> Iterator[dict[str, Any]]:
        # With the first batch, so that a state that is loaded in between is heeded.
        epoch = self._stream.begin()
        while (batch := self._next(epoch)) is not None:
            yield batch
            # While the next one is awaited, the buffers of this one may be filled again.
            del batch

    def _next(self, epoch: int) -> dict[str, Any] | None:
        arrays = self._stream.next(epoch)
        if arrays is None:
            return None
        image, label, cases = arrays
        return {"image": torch.from_numpy(image), "label": torch.from_numpy(label), "case": cases}

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        if self._length is None:
            raise TypeError("these patches have no end: iterations_per_epoch is None")
        return self._length

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the stream of batches, with the settings that it depends on.

        Returns
        -------
        dict
            Numbers, texts and dictionaries of them, for `load_state_dict`, ``torch.save`` or JSON.
        """
        state: dict[str, Any] = json.loads(self._stream.state())
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a position: the next batches have the same bits as those that would have followed it.

        An epoch that the state has begun is continued by the next iteration. Threads, budget, `prefetch`,
        `label_dtype` and `iterations_per_epoch` may differ.

        Parameters
        ----------
        state_dict : mapping
            The result of `state_dict`.

        Raises
        ------
        ValueError
            If it was saved with other settings or other data; the message names the difference.
        """
        try:
            text = json.dumps(dict(state_dict))
        except (TypeError, ValueError) as error:
            raise ValueError(f"state_dict is not the state of Patches: {error}") from error
        self._stream.restore(text)

    def close(self) -> None:
        """End the threads. A later iteration starts them again."""
        self._stream.close()

    def __reduce__(self) -> NoReturn:
        """Refuse to be sent to another process."""
        raise TypeError(f"Patches cannot be pickled, since their threads belong to this process; {_INSTEAD}")

    def __repr__(self) -> str:
        """Return a short description."""
        spacing = f", spacing={self.spacing}" if self.spacing else f", classes={self.classes}"
        return f"Patches({len(self.cases)} cases, channels={self.channels}{spacing})"


def _expect_main_process() -> None:
    worker = get_worker_info()
    if worker is not None:
        raise Error(f"Patches was used in worker process {worker.id} of a DataLoader", _INSTEAD)


def _place(dataset: str | os.PathLike[str] | Sequence[Case]) -> tuple[str, str | None]:
    """Return the path of a data set; or, of a list, the folder of its paths, and the list as JSON."""
    if isinstance(dataset, (str, os.PathLike)):
        return os.fspath(dataset), None
    if isinstance(dataset, Mapping) or not isinstance(dataset, Sequence):
        raise TypeError(
            f"dataset must be a path or a list of dictionaries with 'image' and 'label', not {type(dataset).__name__}"
        )
    cases = [_case(case, f"dataset[{number}]") for number, case in enumerate(dataset)]
    if not cases:
        raise ValueError("dataset is an empty list; pass a dictionary with 'image' and 'label' for each case")
    return os.getcwd(), json.dumps({"training": cases})


def _case(case: object, name: str) -> dict[str, Any]:
    if not isinstance(case, Mapping):
        raise TypeError(f"{name} must be a dictionary with 'image' and 'label', not {type(case).__name__}")
    for key in ("image", "label"):
        if key not in case:
            raise ValueError(f"{name} has no {key!r}; it has {sorted(map(str, case))}")
    image = case["image"]
    is_one = isinstance(image, (str, os.PathLike)) or not isinstance(image, Sequence)
    entry: dict[str, Any] = {
        "image": _path(image, f"{name}['image']")
        if is_one
        else [_path(path, f"{name}['image'][{channel}]") for channel, path in enumerate(image)],
        "label": _path(case["label"], f"{name}['label']"),
    }
    if case.get("fold") is not None:
        entry["fold"] = _count(case["fold"], f"{name}['fold']")
    return entry


def _path(value: object, name: str) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, not {type(value).__name__}")
    path = os.fspath(value)
    if not isinstance(path, str):
        raise TypeError(f"{name} must be a path of text, not of bytes")
    return path


def _sequence(value: object, name: str) -> Sequence[Any]:
    if isinstance(value, str) or not hasattr(value, "__len__") or not hasattr(value, "__iter__"):
        raise TypeError(f"{name} must be a sequence, not {type(value).__name__}")
    return list(value)


def _count(value: object, name: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must have integers, not {type(value).__name__}")
    number = int(value.__index__())
    if not 0 <= number < 2**64:
        raise ValueError(f"{name} is {number}; it must not be negative")
    return number


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    return float(value.__float__())


def _spacing(spacing: object) -> str | None:
    """Return a spacing as JSON."""
    if spacing is None:
        return None
    if isinstance(spacing, str):
        return json.dumps(spacing)
    numbers = [_number(number, "spacing") for number in _sequence(spacing, "spacing")]
    if not all(0 < number < float("inf") for number in numbers):
        raise ValueError(f"spacing is {tuple(numbers)}; spacings must be positive and finite")
    return json.dumps(numbers)


def _optional_number(value: object, name: str) -> float | None:
    return None if value is None else _number(value, name)


def _iterations(iterations: object) -> int | None:
    """Return the batches of an epoch, and `None` where the data set decides or there is no end."""
    if iterations is None or iterations == "auto":
        return None
    if isinstance(iterations, str):
        raise ValueError(f"iterations_per_epoch is {iterations!r}; pass a number, 'auto' or None")
    return _count(iterations, "iterations_per_epoch")


def _images(images: object) -> str | None:
    """Return the preparation of images as JSON."""
    if images is None:
        return None
    if not isinstance(images, Mapping):
        raise TypeError(f"images must be a dictionary, not {type(images).__name__}")
    return json.dumps(plain(images, "images"), allow_nan=False)


def _augmentation(augmentation: object) -> bool | str:
    """Return the augmentation: on, off, or its values as JSON."""
    if isinstance(augmentation, bool):
        return augmentation
    if not isinstance(augmentation, Mapping):
        raise TypeError(f"augmentation must be True, False or a dictionary, not {type(augmentation).__name__}")
    try:
        return json.dumps(dict(augmentation), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"augmentation cannot be read: {error}") from error


def _threads() -> int:
    """Return the number of processors that this process may use, at most `_MOST_THREADS`."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(processors, _MOST_THREADS)
