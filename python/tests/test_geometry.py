"""Geometry against SciPy and against definitions."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
from pathlib import Path

import numpy as np
import pytest

import plimsoll

ndimage = pytest.importorskip("scipy.ndimage")

TYPES = [bool, np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64, ">i4"]


def volume(shape: tuple[int, ...], seed: int = 0, share: float = 0.8) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) < share


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(9, 7, 11), (8, 13), (1, 5, 6)])
def test_distances_equal_scipys_for_every_type(dtype: object, shape: tuple[int, ...]) -> None:
    mask = volume(shape).astype(dtype)
    sampling = (2.0, 0.5, 1.25)[: len(shape)]
    expected = ndimage.distance_transform_edt(mask, sampling)
    found = plimsoll.distance_transform(mask, sampling)
    assert found.dtype == np.float32 and found.shape == mask.shape
    np.testing.assert_allclose(found, expected, rtol=3e-7)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_any_order_of_axes_and_strides_give_the_same_distances(order: tuple[int, int, int]) -> None:
    mask = volume((9, 7, 11)).transpose(order)
    sampling = np.array([2.0, 0.5, 1.25])[list(order)]
    for view in (mask, mask[::-1], mask[:, ::2], np.asfortranarray(mask), mask[..., ::-1]):
        expected, places = ndimage.distance_transform_edt(view, sampling, return_indices=True)
        found, indices = plimsoll.distance_transform(view, sampling, return_indices=True)
        np.testing.assert_allclose(found, expected, rtol=3e-7)
        assert indices.shape == places.shape and indices.dtype == places.dtype
        assert not view[tuple(indices)].any()
        steps = (indices - np.indices(view.shape)) * sampling.reshape(3, 1, 1, 1)
        np.testing.assert_allclose(np.sqrt((steps**2).sum(0)), expected, rtol=3e-7)


def test_squared_distances_of_isotropic_grids_are_exact() -> None:
    mask = volume((20, 30, 25), share=0.99)
    expected = np.round(ndimage.distance_transform_edt(mask) ** 2)
    np.testing.assert_array_equal(plimsoll.distance_transform(mask, squared=True), expected)


def test_signed_distances_are_negative_inside() -> None:
    mask = volume((9, 7, 11), share=0.5)
    expected = ndimage.distance_transform_edt(~mask) - ndimage.distance_transform_edt(mask)
    np.testing.assert_allclose(plimsoll.distance_transform(mask, to="signed"), expected, rtol=3e-7)


def test_distances_to_labels_are_those_of_each_label() -> None:
    labels = np.random.default_rng(1).integers(0, 3, (8, 9, 10)).repeat(2, 0).astype(np.uint16)
    expected = sum(ndimage.distance_transform_edt(labels == label) for label in (1, 2))
    np.testing.assert_allclose(plimsoll.distance_transform(labels, to="labels"), expected, rtol=3e-7)


@pytest.mark.parametrize("shape", [(9, 7, 11), (8, 13)])
def test_a_black_border_is_background_around_the_array(shape: tuple[int, ...]) -> None:
    mask = np.ones(shape, bool)
    sampling = (2.0, 0.5, 1.25)[: len(shape)]
    expected = ndimage.distance_transform_edt(np.pad(mask, 1), sampling)
    expected = expected[(slice(1, -1),) * len(shape)]
    found = plimsoll.distance_transform(mask, anisotropy=sampling, black_border=True)
    np.testing.assert_allclose(found, expected, rtol=3e-7)
    assert np.isinf(plimsoll.distance_transform(mask)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_outputs_are_written_in_place(dtype: object, order: str) -> None:
    mask = np.array(volume((9, 7, 11)), order="C" if dtype == np.float64 else order)
    distances = np.empty(mask.shape, dtype, order=order)
    indices = np.empty((3, *mask.shape), np.int32)
    assert plimsoll.distance_transform(mask, return_indices=True, distances=distances, indices=indices) is None
    np.testing.assert_allclose(distances, ndimage.distance_transform_edt(mask), rtol=3e-7)
    steps = indices - np.indices(mask.shape)
    np.testing.assert_allclose(np.sqrt((steps**2).sum(0)), distances, rtol=3e-7)
    returned = plimsoll.distance_transform(mask, return_distances=False, return_indices=True)
    np.testing.assert_array_equal(returned, indices)


def test_components_are_numbered_as_scipy_numbers_them() -> None:
    mask = volume((9, 7, 11), share=0.3)
    for connectivity, axes in ((6, 1), (18, 2), (26, 3)):
        structure = ndimage.generate_binary_structure(3, axes)
        expected, count = ndimage.label(mask, structure)
        found = plimsoll.connected_components(mask, connectivity, return_N=True)
        assert found[1] == count
        np.testing.assert_array_equal(found[0], expected)
        np.testing.assert_array_equal(plimsoll.connected_components(np.asfortranarray(mask), connectivity), expected)
    labels = np.array([[1, 2, 2], [1, 0, 2]])
    assert plimsoll.connected_components(labels, 4, return_N=True)[1] == 2
    assert plimsoll.connected_components(labels, 4, return_N=True, binary_image=True)[1] == 1


def test_the_largest_component_and_holes() -> None:
    mask = np.zeros((5, 6, 7), bool)
    mask[1:4, 1:4, 1:4] = True
    mask[2, 2, 2] = False
    mask[0, 5, 6] = True
    largest = plimsoll.largest_component(mask)
    assert largest.sum() == 26 and not largest[0, 5, 6]
    np.testing.assert_array_equal(plimsoll.fill_holes(mask), ndimage.binary_fill_holes(mask))
    image = np.pad(np.zeros((2, 2), bool), 1, constant_values=True)
    assert plimsoll.fill_holes(image).all()


def test_a_ring_has_one_tunnel_and_a_shell_one_cavity() -> None:
    ring = np.zeros((3, 5, 5), np.uint8)
    ring[1, 1:4, 1:4] = 1
    ring[1, 2, 2] = 0
    assert plimsoll.betti_numbers(ring) == (1, 1, 0)
    shell = np.ones((3, 3, 3), bool)
    shell[1, 1, 1] = False
    betti = plimsoll.betti_numbers(shell)
    assert (betti.components, betti.tunnels, betti.cavities) == (1, 0, 1)


def test_a_tube_thins_to_a_line() -> None:
    tube = np.zeros((20, 9, 9), bool)
    tube[2:18, 3:6, 3:6] = True
    skeleton = plimsoll.skeletonize(tube)
    assert skeleton.dtype == bool and 10 <= skeleton.sum() <= 18
    assert plimsoll.betti_numbers(skeleton) == (1, 0, 0)
    assert not skeleton[~tube].any()


def test_inputs_are_not_changed_and_outputs_are_not_copied() -> None:
    mask = volume((9, 7, 11)).astype(np.uint8)
    before = mask.copy()
    mask.flags.writeable = False
    distances = np.empty(mask.shape, np.float32)
    pointer = distances.ctypes.data
    plimsoll.distance_transform(mask, distances=distances)
    assert distances.ctypes.data == pointer and distances.any()
    np.testing.assert_array_equal(mask, before)


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"input": np.zeros((3, 3))}, TypeError, "input"),
        ({"input": np.array([[object()]])}, TypeError, "input"),
        ({"input": np.zeros(3, int)}, ValueError, "input has 1 axes"),
        ({"input": np.zeros((1, 1, 1, 1), int)}, ValueError, "input has 4 axes"),
        ({"sampling": (1.0, float("nan"), 1.0)}, ValueError, "sampling"),
        ({"sampling": (1.0, 1.0)}, ValueError, "sampling has 2 numbers"),
        ({"sampling": 0.0}, ValueError, "sampling"),
        ({"anisotropy": -1.0}, ValueError, "anisotropy"),
        ({"anisotropy": 1.0, "sampling": 1.0}, ValueError, "anisotropy"),
        ({"to": "border"}, ValueError, "to is 'border'"),
        ({"to": "signed", "black_border": True}, ValueError, "black_border"),
        ({"black_border": True, "return_indices": True}, ValueError, "black_border"),
        ({"return_distances": False}, ValueError, "return_distances"),
        ({"distances": np.zeros((3, 4, 6), np.float32)}, ValueError, "distances has the shape"),
        ({"distances": np.zeros((3, 4, 5), np.int32)}, TypeError, "distances must be"),
        ({"indices": np.zeros((3, 3, 4, 5), np.int64), "return_indices": True}, TypeError, "indices"),
        ({"threads": 0}, ValueError, "threads"),
        ({"budget": "1GiB"}, TypeError, "budget"),
    ],
)
def test_bad_arguments_are_named(arguments: dict, error: type, named: str) -> None:
    call = {"input": np.ones((3, 4, 5), np.uint8), **arguments}
    with pytest.raises(error, match=named):
        plimsoll.distance_transform(**call)


def test_read_only_outputs_are_refused() -> None:
    distances = np.zeros((3, 4), np.float32)
    distances.flags.writeable = False
    with pytest.raises(ValueError, match="distances is read-only"):
        plimsoll.distance_transform(np.ones((3, 4), bool), distances=distances)


def test_labels_beyond_32_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="data has labels"):
        plimsoll.connected_components(np.array([[2**40, -1]]))


def test_empty_arrays_have_empty_results() -> None:
    empty = np.zeros((0, 4, 5), bool)
    assert plimsoll.distance_transform(empty).shape == (0, 4, 5)
    assert plimsoll.connected_components(empty, return_N=True)[1] == 0
    assert plimsoll.betti_numbers(empty) == (0, 0, 0)


def test_eight_threads_get_their_own_results() -> None:
    masks = [volume((20, 30, 25), seed) for seed in range(8)]
    results: list[np.ndarray | None] = [None] * 8

    def work(at: int) -> None:
        for _ in range(5):
            results[at] = plimsoll.distance_transform(masks[at])

    workers = [threading.Thread(target=work, args=(at,)) for at in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for mask, found in zip(masks, results, strict=True):
        np.testing.assert_allclose(found, ndimage.distance_transform_edt(mask), rtol=3e-7)


MASKS = {
    "distance_transform": "input",
    "connected_components": "data",
    "largest_component": "mask",
    "fill_holes": "mask",
    "skeletonize": "mask",
    "betti_numbers": "mask",
}


@pytest.mark.parametrize(("function", "argument"), MASKS.items())
@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (np.zeros((3, 4, 5), np.float32), TypeError, "has the type float32"),
        (np.zeros((3, 4, 5), complex), TypeError, "has the type complex128"),
        (np.array([[object()]]), TypeError, "has the type object"),
        (np.array([["a"]]), TypeError, "has the type"),
        (np.zeros((3, 4), "M8[s]"), TypeError, "has the type"),
        (None, TypeError, "has the type object"),
        (np.zeros(3, int), ValueError, "has 1 axes"),
        (np.zeros((), int), ValueError, "has 0 axes"),
        (np.zeros((1, 1, 1, 1), int), ValueError, "has 4 axes"),
        ([[1, 2], [3]], TypeError, "cannot be read as an array"),
    ],
)
def test_every_function_names_a_bad_mask(function: str, argument: str, value: object, error: type, said: str) -> None:
    with pytest.raises(error, match=f"{argument} {said}"):
        getattr(plimsoll, function)(value)


@pytest.mark.parametrize("function", MASKS)
@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"threads": 0}, ValueError, "threads is 0"),
        ({"threads": -1}, ValueError, "threads is -1"),
        ({"threads": 1.5}, TypeError, "threads"),
        ({"threads": "all"}, TypeError, "threads"),
        ({"budget": "1GiB"}, TypeError, "budget"),
        ({"budget": plimsoll.Budget(1)}, plimsoll.OverLimit, "1 bytes|1 B"),
    ],
)
def test_every_function_names_bad_resources(function: str, arguments: dict, error: type, named: str) -> None:
    with pytest.raises(error, match=named):
        getattr(plimsoll, function)(np.ones((40, 40, 40), np.uint8), **arguments)


@pytest.mark.parametrize("function", ["connected_components", "largest_component", "fill_holes", "betti_numbers"])
@pytest.mark.parametrize(
    ("connectivity", "error"), [(7, ValueError), (0, ValueError), (-6, ValueError), (6.5, TypeError), ("6", TypeError)]
)
def test_every_function_names_a_bad_connectivity(function: str, connectivity: object, error: type) -> None:
    with pytest.raises(error, match="connectivity"):
        getattr(plimsoll, function)(np.ones((3, 4, 5), bool), connectivity)


@pytest.mark.parametrize(
    ("sampling", "error"),
    [
        (float("nan"), ValueError),
        ((1.0, float("inf"), 1.0), ValueError),
        ((1.0, 1.0, -1.0), ValueError),
        (np.ones((3, 3)), ValueError),
        ("111", TypeError),
        (("a", "b", "c"), TypeError),
        (1j, TypeError),
        (object(), TypeError),
        ({1.0, 2.0, 3.0}, TypeError),
    ],
)
def test_bad_spacings_are_named(sampling: object, error: type) -> None:
    mask = np.ones((3, 4, 5), bool)
    for name in ("sampling", "anisotropy"):
        with pytest.raises(error, match=name):
            plimsoll.distance_transform(mask, **{name: sampling})
    with pytest.raises(error, match="spacing"):
        plimsoll.surface_distances(mask, mask, sampling)


def test_spacings_of_any_kind_of_number_are_accepted() -> None:
    mask = volume((3, 4, 5))
    expected = plimsoll.distance_transform(mask, (2.0, 2.0, 2.0))
    for sampling in (2, 2.0, np.float32(2), np.array(2.0), [2, 2, 2], np.full(3, 2), (np.int64(2),) * 3):
        np.testing.assert_array_equal(plimsoll.distance_transform(mask, sampling), expected)


def test_bad_outputs_are_named() -> None:
    mask = np.ones((3, 4, 5), np.uint8)
    indices = np.zeros((3, 3, 4, 5), np.int32)
    indices.flags.writeable = False
    with pytest.raises(ValueError, match="indices is read-only"):
        plimsoll.distance_transform(mask, return_indices=True, indices=indices)
    with pytest.raises(ValueError, match="indices has the shape"):
        plimsoll.distance_transform(mask, return_indices=True, indices=np.zeros((3, 4, 5), np.int32))
    with pytest.raises(TypeError, match="distances must be an array"):
        plimsoll.distance_transform(mask, distances=np.zeros((3, 4, 5), ">f4"))
    with pytest.raises(TypeError, match="distances must be an array"):
        plimsoll.distance_transform(mask, distances=[[0.0]])


def test_outputs_that_share_memory_with_other_arguments_are_named() -> None:
    memory = np.ones(4 * 3 * 4 * 5, np.uint8)
    mask, distances = memory[:60].reshape(3, 4, 5), memory.view(np.float32).reshape(3, 4, 5)
    with pytest.raises(ValueError, match="distances shares memory with input"):
        plimsoll.distance_transform(mask, distances=distances)
    memory = np.zeros(3 * 60, np.int32)
    mask, indices = memory[:60].view(np.uint32).reshape(3, 4, 5), memory.reshape(3, 3, 4, 5)
    with pytest.raises(ValueError, match="indices shares memory with input"):
        plimsoll.distance_transform(mask, return_indices=True, indices=indices)
    mask, distances = np.ones((3, 4, 5), bool), memory[:60].view(np.float32).reshape(3, 4, 5)
    with pytest.raises(ValueError, match="indices shares memory with distances"):
        plimsoll.distance_transform(mask, return_indices=True, indices=indices, distances=distances)


def test_outputs_of_any_strides_are_written() -> None:
    mask = volume((6, 7, 8))
    expected, places = plimsoll.distance_transform(mask, return_indices=True)
    for view in (np.zeros((6, 7, 16), np.float32)[..., ::2], np.zeros((6, 7, 8), np.float32)[::-1]):
        plimsoll.distance_transform(mask, distances=view)
        np.testing.assert_array_equal(view, expected)
    indices = np.zeros((3, 6, 7, 8), np.int32)[..., ::-1]
    plimsoll.distance_transform(mask, return_distances=False, return_indices=True, indices=indices)
    np.testing.assert_array_equal(indices, places)


@pytest.mark.parametrize("function", MASKS)
def test_masks_of_any_strides_and_types_give_the_same_result(function: str) -> None:
    call = getattr(plimsoll, function)
    whole = volume((12, 14, 16), share=0.5)
    whole.flags.writeable = False
    for mask in (whole[::-1], whole[:, ::2, ::-3], whole.transpose(2, 0, 1), whole[3:3], whole[..., 4]):
        expected = call(np.array(mask, order="C"))
        for dtype in TYPES:
            np.testing.assert_array_equal(call(mask.astype(dtype, order="K")), expected)
        np.testing.assert_array_equal(call(mask), expected)
        np.testing.assert_array_equal(call(mask.tolist() if mask.size else mask), expected)


def test_returned_arrays_belong_to_the_caller() -> None:
    mask = volume((6, 7, 8))
    for array in (*plimsoll.distance_transform(mask, return_indices=True), plimsoll.skeletonize(mask)):
        assert array.flags.writeable and array.flags.aligned
        array[...] = 0


@pytest.mark.parametrize("function", MASKS)
def test_eight_threads_of_every_function_get_their_own_results(function: str) -> None:
    call = getattr(plimsoll, function)
    masks = [volume((16, 20, 18), seed, share=0.5) for seed in range(8)]
    expected = [call(mask) for mask in masks]
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(8):
                at = (number + turn) % 8
                np.testing.assert_array_equal(call(masks[at]), expected[at])
        except BaseException as fault:
            faults.append(fault)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not faults


def resident() -> int:
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.parametrize("function", MASKS)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the resident memory is not readable")
def test_a_thousand_calls_keep_memory_flat(function: str) -> None:
    call = getattr(plimsoll, function)
    masks = [volume((16, 16, 16), share=0.5), volume((16, 16, 16), share=0.5).astype(np.int64)[::-1]]

    def calls(count: int) -> None:
        for _ in range(count):
            for mask in masks:
                call(mask, threads=2)
            with pytest.raises(TypeError):
                call(np.zeros((2, 2)))

    calls(100)
    before = resident()
    calls(500)
    assert resident() - before < 1 << 20
    assert all(holder.now == 0 for holder in plimsoll.memory())


@pytest.mark.parametrize("function", [name for name in MASKS if name != "connected_components"])
def test_wide_integers_are_copied_as_a_byte_per_voxel_or_not_at_all(function: str) -> None:
    budget = plimsoll.Budget("64MiB")
    mask = volume((16, 20, 18), share=0.5).astype(np.int64) << 40
    result = getattr(plimsoll, function)(mask, budget=budget)
    np.testing.assert_array_equal(result, getattr(plimsoll, function)(mask != 0))
    copies = [holder for holder in budget.holders() if holder.name.startswith("copy of")]
    expected = [] if function == "distance_transform" else [mask.size]
    assert [holder.peak for holder in copies] == expected and budget.used == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_forked_workers_compute_as_their_parent() -> None:
    mask = volume((16, 20, 18), share=0.5)
    expected = plimsoll.distance_transform(mask, threads=2)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for found in pool.map(plimsoll.distance_transform, [mask] * 4, chunksize=1):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"pred": np.zeros((3, 4, 5))}, TypeError, "pred has the type float64"),
        ({"ref": np.array([[object()]])}, TypeError, "ref has the type object"),
        ({"ref": np.zeros(3, int)}, ValueError, "ref has 1 axes"),
        ({"pred": np.ones((3, 4, 6), bool)}, ValueError, "pred has the shape"),
        ({"tolerance": float("nan")}, ValueError, "tolerance is nan"),
        ({"tolerance": -1.0}, ValueError, "tolerance is -1"),
        ({"tolerance": "1"}, TypeError, "tolerance"),
        ({"surface": "faces"}, ValueError, "surface is"),
        ({"threads": -1}, ValueError, "threads is -1"),
        ({"threads": "2"}, TypeError, "threads"),
        ({"budget": 1}, TypeError, "budget"),
    ],
)
def test_bad_arguments_of_surface_distances_are_named(arguments: dict, error: type, named: str) -> None:
    masks = {"pred": np.ones((3, 4, 5), bool), "ref": np.ones((3, 4, 5), bool)}
    with pytest.raises(error, match=named):
        plimsoll.surface_distances(**{**masks, **arguments})
