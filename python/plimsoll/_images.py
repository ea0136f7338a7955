"""Images of other packages as arrays with a geometry, and results in the kind of the image."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import spacing_of

Array = npt.NDArray[Any]

# The types that voxels are stored in, by the names of the extension module.
ELEMENTS = {
    "u1": "u8",
    "i1": "i8",
    "u2": "u16",
    "i2": "i16",
    "u4": "u32",
    "i4": "i32",
    "u8": "u64",
    "i8": "i64",
    "f4": "f32",
    "f8": "f64",
}

_MILLIMETRES = {"meter": 1000.0, "micron": 0.001}


@dataclass
class Volume:
    """An image in memory.

    Attributes
    ----------
    channels : list of numpy.ndarray
        Arrays (depth, height, width) in C order.
    affine : tuple of float
        The rows x, y and z of the map from depth, height, width and 1 to millimetres towards right, anterior, superior.
    restore : callable
        Returns labels (depth, height, width) in the kind of the image.
    restore_each : callable
        Returns an array (outputs, depth, height, width) as an array with the axes of the image.
    """

    channels: list[Array]
    affine: tuple[float, ...]
    restore: Callable[[Array], Any]
    restore_each: Callable[[Array], Any]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Depth, height, width."""
        depth, height, width = self.channels[0].shape
        return depth, height, width

    @property
    def element(self) -> str:
        """The name of the type of a voxel."""
        return ELEMENTS[self.channels[0].dtype.str[1:]]


def paths_of(image: object) -> list[str] | None:
    """Return the paths that an image is given as: one, or one for each channel; None for images in memory."""
    if isinstance(image, (str, os.PathLike)):
        return [os.fspath(image)]
    if isinstance(image, (list, tuple)) and image and all(isinstance(item, (str, os.PathLike)) for item in image):
        return [os.fspath(item) for item in image]
    return None


def volume_of(image: Any, spacing: object = None, affine: object = None, name: str = "image") -> Volume:
    """Return an image in memory of any supported kind.

    Raises
    ------
    TypeError, ValueError
        If the kind, the type of voxels or the axes are not supported, or the geometry is given twice.
    """
    reader = _reader_of(image)
    if reader is _of_array:
        return _of_array(image, spacing, affine, name)
    if spacing is not None or affine is not None:
        raise ValueError(f"{name} has a geometry of its own; leave spacing and affine out")
    return reader(image, name)


def _reader_of(image: Any) -> Callable[..., Volume]:
    if hasattr(image, "dataobj") and hasattr(image, "affine"):
        return _of_nibabel
    if type(image).__module__.split(".")[0] == "SimpleITK":
        return _of_simple_itk
    if is_tensor(image) and hasattr(image, "copy_meta_from"):
        return _of_meta_tensor
    return _of_array


def is_tensor(value: object) -> bool:
    """Return True for tensors of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.is_tensor(value))


def _of_tensor(tensor: Any) -> Array:
    """Return a tensor as an array; NumPy has no bfloat16."""
    tensor = tensor.detach().cpu()
    return np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)


def _native(array: Array, name: str) -> Array:
    """Return voxels in one of the types that are stored, in C order."""
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    elif array.dtype.kind == "f" and array.dtype.itemsize == 2:
        array = array.astype(np.float32)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.str[1:] not in ELEMENTS:
        raise TypeError(f"{name} has the type {array.dtype}; pass integers or real numbers")
    return np.ascontiguousarray(array)


def _channels(array: Array, name: str) -> list[Array]:
    """Return the channels of an array with the channels first, of which none is empty."""
    if 0 in array.shape:
        raise ValueError(f"{name} has the shape {array.shape}, which is empty")
    return [_native(channel, name) for channel in array]


def _of_array(image: Any, spacing: object, affine: object, name: str) -> Volume:
    was_tensor = is_tensor(image)
    if not was_tensor and not hasattr(image, "__array__"):
        raise TypeError(
            f"{name} must be a path, an array, a tensor, or an image of nibabel, SimpleITK or MONAI, not "
            f"{type(image).__name__}"
        )
    array = _of_tensor(image) if was_tensor else np.asarray(image)
    if array.ndim not in (2, 3, 4):
        raise ValueError(f"{name} has {array.ndim} axes; pass (depth, height, width), or channels before them")
    if spacing is not None and affine is not None:
        raise ValueError("spacing and affine are both given; pass one of them")
    if affine is not None:
        volume = _of_world(array, np.asarray(affine, np.float64), name)
    else:
        rank = min(array.ndim, 3)
        spatial = array if array.ndim == 4 else array[None]
        spatial = spatial[:, None] if rank == 2 else spatial
        numbers = (1.0,) * (3 - rank) + spacing_of(spacing, rank, "spacing")
        rows = [[0.0] * 4 for _ in range(3)]
        # Depth towards superior, height towards anterior, width towards right.
        rows[2][0], rows[1][1], rows[0][2] = numbers
        flat = tuple(number for row in rows for number in row)

        def restore(labels: Array) -> Array:
            return labels[0] if rank == 2 else labels

        def restore_each(values: Array) -> Array:
            return values[:, 0] if rank == 2 else values

        volume = Volume(_channels(spatial, name), flat, restore, restore_each)
    return _as_tensors(volume) if was_tensor else volume


def _as_tensors(volume: Volume) -> Volume:
    """Return the same volume, whose results are tensors."""
    from_numpy = importlib.import_module("torch").from_numpy

    def tensor(restored: Array) -> Any:
        restored = np.ascontiguousarray(restored)
        return from_numpy(restored.astype(np.int32) if restored.dtype == np.uint16 else restored)

    return Volume(
        volume.channels,
        volume.affine,
        lambda labels: tensor(volume.restore(labels)),
        lambda values: tensor(volume.restore_each(values)),
    )


def _of_world(array: Array, affine: npt.NDArray[np.float64], name: str) -> Volume:
    """Return a volume of an array (x, y, z), or with channels before these axes, as nibabel and MONAI have them."""
    if array.ndim not in (3, 4):
        raise ValueError(f"{name} has {array.ndim} axes; with affine pass (x, y, z), or channels before them")
    if affine.shape not in ((4, 4), (3, 4)):
        raise ValueError(f"affine has the shape {affine.shape}; it must be (4, 4)")
    if not np.isfinite(affine).all():
        raise ValueError("affine has numbers that are not finite")
    spatial = array if array.ndim == 4 else array[None]
    # The first axis of a file is the one whose voxels lie together.
    columns = affine[:3, [2, 1, 0, 3]]
    return Volume(
        _channels(spatial.transpose(0, 3, 2, 1), name),
        tuple(float(number) for number in columns.reshape(-1)),
        lambda labels: labels.transpose(2, 1, 0),
        lambda values: values.transpose(0, 3, 2, 1),
    )


def _of_nibabel(image: Any, name: str) -> Volume:
    nibabel = importlib.import_module("nibabel")
    array: Array = np.asanyarray(image.dataobj)
    while array.ndim > 4 and array.shape[3] == 1:
        array = array[:, :, :, 0]
    if array.ndim == 4:
        array = np.moveaxis(array, 3, 0)
    affine = np.array(image.affine, np.float64)
    units = getattr(image.header, "get_xyzt_units", lambda: ("mm", "sec"))()
    affine[:3] *= _MILLIMETRES.get(units[0], 1.0)
    volume = _of_world(array, affine, name)

    def restore(labels: Array) -> Any:
        is_nifti = isinstance(image, nibabel.Nifti1Image)
        kind = type(image) if is_nifti else nibabel.Nifti1Image
        header = image.header.copy() if is_nifti else None
        if header is not None:
            header.set_data_dtype(labels.dtype)
            header["cal_max"] = header["cal_min"] = 0
        return kind(labels.transpose(2, 1, 0), image.affine, header)

    volume.restore = restore
    return volume


def _of_simple_itk(image: Any, name: str) -> Volume:
    sitk = importlib.import_module("SimpleITK")
    if image.GetDimension() != 3:
        raise ValueError(
            f"{name} has {image.GetDimension()} dimensions; pass an image of 3, for example by sitk.JoinSeries"
        )
    array: Array = sitk.GetArrayViewFromImage(image)
    spatial = np.moveaxis(array, 3, 0) if array.ndim == 4 else array[None]
    direction = np.array(image.GetDirection(), np.float64).reshape(3, 3)
    columns = np.column_stack([direction * np.array(image.GetSpacing()), np.array(image.GetOrigin())])
    # ITK's x points left and its y posterior.
    columns[:2] *= -1.0

    def restore(labels: Array) -> Any:
        result = sitk.GetImageFromArray(np.ascontiguousarray(labels))
        result.SetSpacing(image.GetSpacing())
        result.SetDirection(image.GetDirection())
        result.SetOrigin(image.GetOrigin())
        return result

    flat = tuple(float(number) for number in columns[:, [2, 1, 0, 3]].reshape(-1))
    return Volume(_channels(spatial, name), flat, restore, lambda values: values)


def _of_meta_tensor(image: Any, name: str) -> Volume:
    if image.ndim not in (3, 4):
        raise ValueError(f"{name} has {image.ndim} axes; pass (C, x, y, z) without an axis of samples")
    array = _of_tensor(image.as_tensor())
    affine = np.asarray(image.affine.detach().cpu(), np.float64)
    volume = _of_world(array, affine, name)
    tensors = _as_tensors(volume)

    def with_meta(tensor: Any) -> Any:
        return type(image)(tensor).copy_meta_from(image, copy_attr=False)

    def restore(labels: Array) -> Any:
        tensor = tensors.restore(labels)
        return with_meta(tensor[None] if image.ndim == 4 else tensor)

    return Volume(volume.channels, volume.affine, restore, lambda values: with_meta(tensors.restore_each(values)))
