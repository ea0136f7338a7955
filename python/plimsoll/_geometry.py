"""Geometry of masks and label maps: distances, components, holes, skeletons and topology."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from . import _plimsoll
from ._arrays import Array, Mask, connectivity_of, ledger_of, threads_of
from ._memory import Budget

Distances = npt.NDArray[np.float32]


class BettiNumbers(NamedTuple):
    """The numbers of holes of a mask.

    Attributes
    ----------
    components : int
        Components of the foreground, b₀.
    tunnels : int
        Tunnels through it, b₁.
    cavities : int
        Cavities inside of it, b₂.
    """

    components: int
    tunnels: int
    cavities: int


def distance_transform(
    input: npt.ArrayLike,
    sampling: float | npt.ArrayLike | None = None,
    return_distances: bool = True,
    return_indices: bool = False,
    distances: Array | None = None,
    indices: Array | None = None,
    *,
    to: Literal["background", "labels", "signed"] = "background",
    squared: bool = False,
    anisotropy: float | npt.ArrayLike | None = None,
    black_border: bool = False,
    threads: int | None = None,
    budget: Budget | None = None,
) -> Any:
    """Compute exact Euclidean distances.

    The arguments of `scipy.ndimage.distance_transform_edt` have the same meaning. Distances are 32-bit floats: the
    relative error is below 3e-7, and squared distances of isotropic grids are exact up to 2**24. The input is read
    where it is, whatever its strides and its type of integers.

    Parameters
    ----------
    input : array_like
        A mask or label map of integers or booleans with 2 or 3 axes. 0 is background.
    sampling : float or sequence of float, optional
        The distance between voxels along each axis; 1 by default.
    return_distances, return_indices : bool, optional
        The results to return.
    distances : ndarray, optional
        An array of float32 or float64 that receives the distances, which are then not returned.
    indices : ndarray, optional
        An array of int32 and of shape ``(input.ndim, *input.shape)`` that receives the indices, which are then not
        returned.
    to : {"background", "labels", "signed"}, optional
        Distances from each foreground voxel to the nearest background voxel; to the nearest voxel of another label, as
        `edt.edt`; or from each voxel to the other side, negative inside, as a signed distance function.
    squared : bool, optional
        Return squared distances.
    anisotropy : float or sequence of float, optional
        Another name of `sampling`, as in `edt.edt`.
    black_border : bool, optional
        Treat everything outside of the array as background, as `edt.edt` does with this option.
    threads : int, optional
        The number of threads; all processors by default.
    budget : Budget, optional
        The budget for working memory.

    Returns
    -------
    distances : ndarray of float32, if `return_distances` and no array is given
        Infinite where there is nothing to measure to.
    indices : ndarray of int32, if `return_indices` and no array is given
        Indices of the nearest background voxel along each axis, or −1 where there is none. Of several nearest voxels,
        SciPy may return another one.

    Raises
    ------
    OverLimit
        If the budget has too little left.
    """
    if anisotropy is not None:
        if sampling is not None:
            raise ValueError("sampling and anisotropy are two names of the same argument; pass one of them")
        sampling, name = anisotropy, "anisotropy"
    else:
        name = "sampling"
    if to not in ("background", "labels", "signed"):
        raise ValueError(f"to is {to!r}, but must be 'background', 'labels' or 'signed'")
    if not (return_distances or return_indices):
        raise ValueError("return_distances and return_indices are both False; there is nothing to return")
    if distances is not None and not return_distances:
        raise ValueError("distances is given, but return_distances is False")
    if indices is not None and not return_indices:
        raise ValueError("indices is given, but return_indices is False")
    ledger, threads = ledger_of(budget), threads_of(threads)
    mask = Mask(input, "input", budget, labels=to == "labels", any_layout=True)
    spacing = mask.spacing(sampling, name)
    target, written = _distances(mask, distances)
    places = _indices(mask, indices) if return_indices else None
    _refuse_overlap(distances, "distances", mask.voxels, "input")
    _refuse_overlap(indices, "indices", mask.voxels, "input")
    _refuse_overlap(indices, "indices", written, "distances")
    _plimsoll.transform_distances(
        mask.voxels, spacing, mask.rank, to, squared, black_border, written, places, ledger, threads
    )
    if distances is not None and target is not None:
        distances[...] = target
    results: list[Array] = []
    if return_distances and distances is None and target is not None:
        results.append(target)
    if places is not None:
        ordered = places.reshape((mask.rank, *mask.voxels.shape[3 - mask.rank :]))
        if mask.is_reversed:
            # The first axis of a reversed mask is its last.
            ordered = ordered.transpose(0, *range(mask.rank, 0, -1))[::-1]
        if indices is None:
            results.append(ordered)
        elif ordered.base is not indices and not np.shares_memory(ordered, indices):
            indices[...] = ordered
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def _refuse_overlap(output: Array | None, name: str, other: Array, other_name: str) -> None:
    if output is not None and np.may_share_memory(output, other) and np.shares_memory(output, other):
        raise ValueError(f"{name} shares memory with {other_name}")


def _distances(mask: Mask, distances: Array | None) -> tuple[Array | None, Array]:
    """Return the array of the result, or `None` if the kernels write to the caller's, and the kernels' view."""
    if distances is not None:
        dtype = np.float64 if getattr(distances, "dtype", None) == np.float64 else np.float32
        view = mask.output_into(distances, dtype, "distances")
        if view is not None and dtype == np.float32:
            return None, view
    return mask.output(np.float32)


def _indices(mask: Mask, indices: Array | None) -> npt.NDArray[np.int32]:
    """Return the flat array that the kernels write indices to: the caller's if its order is that of the kernels."""
    count = mask.rank * mask.voxels.size
    if indices is None:
        return np.empty(count, np.int32)
    shape = (mask.rank, *mask.shape)
    if not isinstance(indices, np.ndarray) or indices.dtype != np.int32:
        raise TypeError("indices must be an array of type int32")
    if indices.shape != shape:
        raise ValueError(f"indices has the shape {indices.shape}, but must have {shape}")
    if not indices.flags.writeable:
        raise ValueError("indices is read-only")
    if indices.flags.c_contiguous and not mask.is_reversed:
        return indices.reshape(count)
    return np.empty(count, np.int32)


@overload
def connected_components(
    data: npt.ArrayLike,
    connectivity: int = ...,
    *,
    return_N: Literal[False] = ...,
    binary_image: bool = ...,
    threads: int | None = ...,
    budget: Budget | None = ...,
) -> npt.NDArray[np.uint32]: ...
@overload
def connected_components(
    data: npt.ArrayLike,
    connectivity: int = ...,
    *,
    return_N: Literal[True],
    binary_image: bool = ...,
    threads: int | None = ...,
    budget: Budget | None = ...,
) -> tuple[npt.NDArray[np.uint32], int]: ...
def connected_components(
    data: npt.ArrayLike,
    connectivity: int = 26,
    *,
    return_N: bool = False,  # noqa: N803
    binary_image: bool = False,
    threads: int | None = None,
    budget: Budget | None = None,
) -> Any:
    """Find the connected components of a label map, with the arguments of `cc3d.connected_components`.

    Parameters
    ----------
    data : array_like
        A mask or label map of integers or booleans with 2 or 3 axes. 0 is background.
    connectivity : {4, 8, 6, 18, 26}, optional
        The number of neighbours: 4 or 8 with two axes, 6, 18 or 26 with three. With two axes 26 means 8 and 6 means 4.
    return_N : bool, optional
        Also return the number of components.
    binary_image : bool, optional
        Join touching voxels of different labels.
    threads : int, optional
        The number of threads; all processors by default.
    budget : Budget, optional
        The budget for working memory.

    Returns
    -------
    labels : ndarray of uint32
        The number of its component for each voxel, from 1 in the order of their first voxels, or 0 for background.
    N : int, if `return_N`
        The number of components.
    """
    ledger, threads = ledger_of(budget), threads_of(threads)
    connectivity = connectivity_of(connectivity)
    mask = Mask(data, "data", budget, any_order=False, labels=not binary_image)
    labels, written = mask.output(np.uint32)
    count = _plimsoll.connected_components(
        mask.voxels, mask.rank, connectivity, not binary_image, written, ledger, threads
    )
    return (labels, count) if return_N else labels


def largest_component(
    mask: npt.ArrayLike, connectivity: int = 26, *, threads: int | None = None, budget: Budget | None = None
) -> npt.NDArray[np.bool_]:
    """Return the largest connected component of a mask as a mask.

    Of several components of the same size, the one with the first voxel is returned. `connectivity`, `threads` and
    `budget` have the meaning that they have in `connected_components`.
    """
    ledger, threads = ledger_of(budget), threads_of(threads)
    connectivity = connectivity_of(connectivity)
    voxels = Mask(mask, "mask", budget, any_order=False)
    result, written = voxels.output(np.bool_)
    _plimsoll.largest_component(voxels.voxels, voxels.rank, connectivity, written, ledger, threads)
    return result


def fill_holes(
    mask: npt.ArrayLike, connectivity: int = 6, *, threads: int | None = None, budget: Budget | None = None
) -> npt.NDArray[np.bool_]:
    """Fill the holes of a mask, as `scipy.ndimage.binary_fill_holes` does by default.

    A hole is background that no path of neighbours joins to the border of the array. `connectivity` is the number of
    neighbours of background voxels; with two axes 6 means 4.
    """
    ledger, threads = ledger_of(budget), threads_of(threads)
    connectivity = connectivity_of(connectivity)
    voxels = Mask(mask, "mask", budget)
    result, written = voxels.output(np.bool_)
    _plimsoll.fill_holes(voxels.voxels, voxels.rank, connectivity, written, ledger, threads)
    return result


def skeletonize(
    mask: npt.ArrayLike,
    *,
    keep_topology: bool = True,
    threads: int | None = None,
    budget: Budget | None = None,
) -> npt.NDArray[np.bool_]:
    """Thin a mask to a skeleton one voxel wide by the algorithm of Lee, Kashyap and Chu (1994).

    Parameters
    ----------
    mask : array_like
        A mask of integers or booleans with 2 or 3 axes.
    keep_topology : bool, optional
        Preserve all components, tunnels and cavities. With `False` the result equals
        ``skimage.morphology.skeletonize(mask, method="lee")``, which may lose a tunnel of a mask that thins to sheets.
    threads : int, optional
        The number of threads; all processors by default.
    budget : Budget, optional
        The budget for working memory.

    Returns
    -------
    ndarray of bool
    """
    ledger, threads = ledger_of(budget), threads_of(threads)
    voxels = Mask(mask, "mask", budget, any_order=False)
    result, written = voxels.output(np.bool_)
    _plimsoll.skeletonize(voxels.voxels, voxels.rank, bool(keep_topology), 0, written, ledger, threads)
    return result


def betti_numbers(
    mask: npt.ArrayLike, connectivity: int = 26, *, threads: int | None = None, budget: Budget | None = None
) -> BettiNumbers:
    """Count the components, tunnels and cavities of a mask.

    Parameters
    ----------
    mask : array_like
        A mask of integers or booleans with 2 or 3 axes.
    connectivity : {4, 8, 6, 26}, optional
        The number of neighbours of foreground voxels; the background has the dual connectivity.
    threads : int, optional
        The number of threads; all processors by default.
    budget : Budget, optional
        The budget for working memory.

    Returns
    -------
    BettiNumbers
        A named tuple ``(components, tunnels, cavities)``.
    """
    ledger, threads = ledger_of(budget), threads_of(threads)
    connectivity = connectivity_of(connectivity)
    voxels = Mask(mask, "mask", budget)
    return BettiNumbers(*_plimsoll.betti_numbers(voxels.voxels, connectivity, ledger, threads))
