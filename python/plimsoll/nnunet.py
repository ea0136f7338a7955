"""A predictor with the interface of nnU-Net's `nnUNetPredictor`."""

from __future__ import annotations

import importlib
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _plimsoll
from ._images import ELEMENTS, paths_of
from ._model import Model, Path, Progress, _flat

__all__ = ["Predictor"]

Cases = Sequence[Sequence[Path]]


class Predictor:
    """A predictor with the interface of `nnunetv2.inference.predict_from_raw_data.nnUNetPredictor`.

    The network runs inside a memory limit and without nnU-Net. `perform_everything_on_device`,
    `verbose_preprocessing` and numbers of processes are accepted and change nothing: the memory limit decides where
    sums are held, and one process reads, predicts and writes.

    Parameters
    ----------
    tile_step_size : float
        The distance of windows as a share of their extent.
    use_gaussian : bool
        Weight the voxels of windows by a Gaussian.
    use_mirroring : bool
        Average mirrored windows along the axes that the model allows.
    perform_everything_on_device : bool
        Accepted for compatibility.
    device : str or torch.device
        ``"cpu"`` (the default here), ``"cuda"`` or ``"cuda:1"``.
    verbose : bool
        Print the description of the model when it is opened.
    verbose_preprocessing : bool
        Accepted for compatibility.
    allow_tqdm : bool
        Show progress bars if tqdm is installed.
    ram : str or int, optional
        The limit of the memory that Plimsoll takes.
    vram : str or int, optional
        The limit of the device's own memory.
    threads : int, optional
        The number of threads; all processors by default.

    Examples
    --------
    >>> predictor = Predictor(ram="4GiB")
    >>> predictor.initialize_from_trained_model_folder(folder, use_folds=(0,))  # doctest: +SKIP
    >>> predictor.predict_from_files("imagesTs", "labelsTs")  # doctest: +SKIP
    """

    def __init__(
        self,
        tile_step_size: float = 0.5,
        use_gaussian: bool = True,
        use_mirroring: bool = True,
        perform_everything_on_device: bool = True,
        device: Any = "cpu",
        verbose: bool = False,
        verbose_preprocessing: bool = False,
        allow_tqdm: bool = True,
        *,
        ram: str | int | None = None,
        vram: str | int | None = None,
        threads: int | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            "tile_step_size": tile_step_size,
            "use_gaussian": use_gaussian,
            # Models that were not trained with mirrored images are not mirrored, as in nnU-Net.
            "use_mirroring": None if use_mirroring else False,
            "device": str(device),
            "vram": vram,
            "threads": threads,
        }
        self._verbose = verbose
        self._allow_tqdm = allow_tqdm
        self._ram = ram
        self._model: Model | None = None

    @property
    def model(self) -> Model:
        """The open model."""
        if self._model is None:
            raise RuntimeError("no model is open; call initialize_from_trained_model_folder first")
        return self._model

    def initialize_from_trained_model_folder(
        self,
        model_training_output_dir: Path,
        use_folds: int | str | Sequence[int | str] | None,
        checkpoint_name: str = "checkpoint_final.pth",
    ) -> None:
        """Open a trained configuration.

        Parameters
        ----------
        model_training_output_dir : path-like
            The folder ``Trainer__Plans__Configuration``.
        use_folds : int, str, sequence or None
            The folds to average; None for all that have the checkpoint.
        checkpoint_name : str
            The file of the weights of a fold.
        """
        # Labels of nnU-Net are post-processed by a program of their own.
        self._model = Model(
            model_training_output_dir,
            folds=use_folds,
            checkpoint=checkpoint_name,
            postprocessing=False,
            **self._options,
        )
        if self._verbose:
            print(self._model)

    def predict_from_files(
        self,
        list_of_lists_or_source_folder: Path | Cases,
        output_folder_or_list_of_truncated_output_files: Path | Sequence[Path] | None,
        save_probabilities: bool = False,
        overwrite: bool = True,
        num_processes_preprocessing: int | None = None,
        num_processes_segmentation_export: int | None = None,
        folder_with_segs_from_prev_stage: Path | None = None,
        num_parts: int = 1,
        part_id: int = 0,
    ) -> list[Any] | None:
        """Predict images in files.

        Parameters
        ----------
        list_of_lists_or_source_folder : path-like or list of lists of path-like
            A folder of images, or for each case the files of its channels.
        output_folder_or_list_of_truncated_output_files : path-like, list of path-like or None
            The folder of label maps, or for each case its label map without the file ending; None to return labels.
        save_probabilities : bool
            Write or return probabilities, too.
        overwrite : bool
            Replace existing label maps; otherwise they are kept.
        num_processes_preprocessing, num_processes_segmentation_export : int, optional
            Accepted for compatibility.
        folder_with_segs_from_prev_stage : path-like, optional
            The labels of the earlier stage of a cascade.
        num_parts, part_id : int
            Predict every `num_parts`-th case, from `part_id` on.

        Returns
        -------
        list or None
            Labels (depth, height, width) of each case, or tuples of labels and probabilities, if no output is named.
        """
        source, output = list_of_lists_or_source_folder, output_folder_or_list_of_truncated_output_files
        if num_parts < 1 or not 0 <= part_id < num_parts:
            raise ValueError(f"part_id is {part_id}; it must be at least 0 and below num_parts, {num_parts}")
        is_folder = paths_of(source) is not None and not isinstance(source, (list, tuple))
        is_to_folder = output is not None and not isinstance(output, (list, tuple))
        if is_folder and is_to_folder and num_parts == 1:
            self.model.predict_folder(
                source,  # type: ignore[arg-type]
                output,  # type: ignore[arg-type]
                probabilities=save_probabilities,
                overwrite=overwrite,
                previous_stage=folder_with_segs_from_prev_stage,
                ram=self._ram,
                progress=self._progress(),
            )
            return None
        if folder_with_segs_from_prev_stage is not None:
            raise ValueError(
                "folder_with_segs_from_prev_stage needs a folder of images and a folder of label maps, and num_parts=1"
            )
        cases = self._cases(source)
        outputs = self._outputs(cases, output)
        chosen = list(zip(cases, outputs, strict=True))[part_id::num_parts]
        results = [self._predict_case(paths, to, save_probabilities, overwrite) for (_, paths), to in chosen]
        return results if output is None else None

    def predict_from_files_sequential(
        self,
        list_of_lists_or_source_folder: Path | Cases,
        output_folder_or_list_of_truncated_output_files: Path | Sequence[Path] | None,
        save_probabilities: bool = False,
        overwrite: bool = True,
        folder_with_segs_from_prev_stage: Path | None = None,
    ) -> list[Any] | None:
        """Predict images in files, as `predict_from_files`, which uses one process as well."""
        return self.predict_from_files(
            list_of_lists_or_source_folder,
            output_folder_or_list_of_truncated_output_files,
            save_probabilities,
            overwrite,
            folder_with_segs_from_prev_stage=folder_with_segs_from_prev_stage,
        )

    def predict_single_npy_array(
        self,
        input_image: npt.NDArray[Any],
        image_properties: dict[str, Any],
        segmentation_previous_stage: npt.NDArray[Any] | None = None,
        output_file_truncated: Path | None = None,
        save_or_return_probabilities: bool = False,
    ) -> Any:
        """Predict an array.

        Parameters
        ----------
        input_image : numpy.ndarray
            The image (channels, depth, height, width).
        image_properties : dict
            Its ``"spacing"`` along depth, height and width, as nnU-Net's readers return it. For a file,
            ``"sitk_stuff"`` of `SimpleITKIO` has the position.
        segmentation_previous_stage : None
            Labels of an earlier stage are only supported for files.
        output_file_truncated : path-like, optional
            The label map to write, without the file ending.
        save_or_return_probabilities : bool
            Return or write probabilities, too.

        Returns
        -------
        numpy.ndarray, tuple or None
            Labels (depth, height, width), or labels and probabilities; None if a file is written.
        """
        if segmentation_previous_stage is not None:
            raise ValueError("segmentation_previous_stage is not supported for arrays; use predict_from_files")
        if np.ndim(input_image) != 4:
            raise ValueError(f"input_image has {np.ndim(input_image)} axes; pass (channels, depth, height, width)")
        result = self.model.predict(
            input_image,
            spacing=image_properties["spacing"],
            probabilities=save_or_return_probabilities,
            ram=self._ram,
            progress=self._progress(),
        )
        if output_file_truncated is None:
            return result
        labels, probabilities = result if save_or_return_probabilities else (result, None)
        to = os.fspath(output_file_truncated)
        affine = _affine_of(image_properties)
        element = ELEMENTS[labels.dtype.str[1:]]
        _plimsoll.write_image(to + self._ending, labels.shape, affine, element, _flat(np.ascontiguousarray(labels)))
        if probabilities is not None:
            np.savez_compressed(to + ".npz", probabilities=probabilities)
        return None

    @property
    def _ending(self) -> str:
        return self.model._model.file_ending

    def _cases(self, source: Path | Cases) -> list[tuple[str, list[str]]]:
        """Return the names of cases and the files of their channels."""
        if not isinstance(source, (list, tuple)):
            found = self.model._model.cases(os.fspath(source))  # type: ignore[arg-type]
            return [(name, [os.fspath(path) for path in paths]) for name, paths in found]
        cases = []
        for number, case in enumerate(source):
            paths = paths_of(case)
            if paths is None:
                raise TypeError(f"list_of_lists_or_source_folder has a case {number} that is no list of paths")
            cases.append((pathlib.Path(paths[0]).name, paths))
        return cases

    def _outputs(
        self, cases: list[tuple[str, list[str]]], output: Path | Sequence[Path] | None
    ) -> list[pathlib.Path | None]:
        """Return the label map of each case."""
        if output is None:
            return [None] * len(cases)
        if isinstance(output, (list, tuple)):
            if len(output) != len(cases):
                raise ValueError(f"{len(output)} output files are named for {len(cases)} cases")
            return [pathlib.Path(os.fspath(path) + self._ending) for path in output]
        folder = pathlib.Path(output)  # type: ignore[arg-type]
        folder.mkdir(parents=True, exist_ok=True)
        ending = self._ending
        return [folder / (_case_name(name, ending) + ending) for name, _ in cases]

    def _predict_case(self, paths: list[str], output: pathlib.Path | None, probabilities: bool, overwrite: bool) -> Any:
        if output is not None and output.exists() and not overwrite:
            return output
        options: dict[str, Any] = {} if output is None else {"output": output, "overwrite": True}
        return self.model.predict(
            paths, probabilities=probabilities, ram=self._ram, progress=self._progress(), **options
        )

    def _progress(self) -> Progress | None:
        """Return a function that shows a progress bar, if tqdm is installed."""
        if not self._allow_tqdm:
            return None
        try:
            bar: Any = importlib.import_module("tqdm").tqdm(unit="window", leave=False)
        except ImportError:
            return None

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)
            if done >= total:
                bar.close()

        return advance


def _case_name(name: str, ending: str) -> str:
    """Return the name of a case for the name of its first file: without the ending and the number of the channel."""
    stem = name[: -len(ending)] if name.endswith(ending) else name
    return stem[:-5] if stem[-5:-4] == "_" and stem[-4:].isdigit() else stem


def _affine_of(properties: dict[str, Any]) -> tuple[float, ...]:
    """Return the rows x, y and z of the map from depth, height, width and 1 to millimetres."""
    stuff = properties.get("sitk_stuff")
    if stuff is None:
        raise ValueError(
            "image_properties has no sitk_stuff, which a label map needs for its position; return labels instead"
        )
    columns = np.array(stuff["direction"], np.float64).reshape(3, 3) * np.array(stuff["spacing"], np.float64)
    rows = np.column_stack([columns, np.array(stuff["origin"], np.float64)])
    rows[:2] *= -1.0
    return tuple(float(number) for number in rows[:, [2, 1, 0, 3]].reshape(-1))
