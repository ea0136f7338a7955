"""Geometry against SciPy and against definitions."""

from __future__ import annotations

import itertools
import threading

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
