"""Sliding windows against MONAI's."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import numpy as np
import pytest

import plimsoll

torch = pytest.importorskip("torch")
inferers = pytest.importorskip("monai.inferers")


def network(channels: int, classes: int, rank: int = 3) -> Any:
    """Return a convolution with random weights, whose output at the border of a window depends on its padding."""
    torch.manual_seed(0)
    kind = torch.nn.Conv3d if rank == 3 else torch.nn.Conv2d
    return kind(channels, classes, 3, padding=1).eval()


def expected(image: Any, function: Any, **options: Any) -> Any:
    with torch.no_grad():
        return inferers.sliding_window_inference(image, predictor=function, **options)


def assert_same(image: Any, function: Any, **options: Any) -> None:
    """Compare logits and labels with MONAI's; labels may differ where two classes are equal up to rounding."""
    options.setdefault("sw_batch_size", 3)
    reference = expected(image, function, **options)
    logits = plimsoll.sliding_window(image, function, output="logits", **options)
    assert logits.shape == reference.shape and logits.dtype == torch.float32
    torch.testing.assert_close(logits, reference, rtol=1e-5, atol=1e-5)
    labels = plimsoll.sliding_window(image, function, **options)
    assert labels.dtype == torch.uint8
    assert torch.equal(labels.long(), logits.argmax(1))
    best = reference.topk(2, dim=1).values
    is_clear = best[:, 0] - best[:, 1] > 1e-4
    assert bool(is_clear.float().mean() > 0.99)
    assert torch.equal(labels.long()[is_clear], reference.argmax(1)[is_clear])


@pytest.mark.parametrize("mode", ["constant", "gaussian"])
@pytest.mark.parametrize(
    ("shape", "roi"),
    [
        ((19, 23, 31), (8, 12, 16)),
        ((40, 11, 12), (8, 11, 16)),
        ((9, 30, 60), (12, 12, 10)),
        ((5, 6, 7), (8, 9, 12)),
        ((16, 16, 16), (16, 16, 16)),
    ],
)
def test_logits_and_labels_are_those_of_monai(shape: tuple[int, ...], roi: tuple[int, ...], mode: str) -> None:
    image = torch.rand(1, 2, *shape, generator=torch.Generator().manual_seed(1))
    for overlap, sigma in [(0.25, 0.125), ((0.5, 0.0, 0.7), (0.2, 0.125, 0.3))]:
        assert_same(image, network(2, 4), roi_size=roi, overlap=overlap, mode=mode, sigma_scale=sigma)


@pytest.mark.parametrize("padding", ["constant", "reflect", "replicate", "circular"])
def test_small_images_are_padded_like_monai_pads_them(padding: str) -> None:
    image = torch.rand(1, 1, 9, 20, 8, generator=torch.Generator().manual_seed(2))
    cval = 0.7 if padding == "constant" else 0.0
    assert_same(image, network(1, 3), roi_size=(12, 8, 15), padding_mode=padding, cval=cval)


def test_images_of_two_axes_and_several_samples() -> None:
    image = torch.rand(3, 2, 40, 33, generator=torch.Generator().manual_seed(3))
    assert_same(image, network(2, 5, rank=2), roi_size=(16, 12), mode="gaussian")
    assert_same(image, network(2, 5, rank=2), roi_size=16, mode="gaussian", sw_batch_size=1)
    assert_same(image, network(2, 5, rank=2), roi_size=(-1, 12), sw_batch_size=100)


def test_images_without_samples_arrays_and_meta_tensors_keep_their_kind() -> None:
    image = torch.rand(1, 1, 20, 21, 22, generator=torch.Generator().manual_seed(4))
    module = network(1, 3)
    labels = plimsoll.sliding_window(image, module, (8, 8, 8))
    assert torch.equal(plimsoll.sliding_window(image[0], module, (8, 8, 8)), labels[0])

    def function(windows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert isinstance(windows, np.ndarray)
        result: np.ndarray[Any, Any] = module(torch.from_numpy(windows)).numpy()
        return result

    array = plimsoll.sliding_window(image.numpy(), function, (8, 8, 8))
    assert isinstance(array, np.ndarray) and array.dtype == np.uint8
    np.testing.assert_array_equal(array, labels.numpy())
    data = pytest.importorskip("monai.data")
    affine = torch.diag(torch.tensor([2.0, 3.0, 4.0, 1.0], dtype=torch.float64))
    meta = plimsoll.sliding_window(data.MetaTensor(image, affine=affine), module, (8, 8, 8))
    assert isinstance(meta, data.MetaTensor) and torch.equal(meta.affine, affine)
    assert torch.equal(meta.as_tensor(), labels)


def test_coordinates_are_those_that_monai_passes() -> None:
    image = torch.rand(2, 1, 5, 30, 17, generator=torch.Generator().manual_seed(5))

    def recorder(seen: list[Any]) -> Any:
        def function(windows: Any, coordinates: Any) -> Any:
            for window, (sample, _, *slices) in zip(windows, coordinates, strict=True):
                seen.append((sample.start, *(part.start for part in slices), window.sum().item()))
            return torch.cat([windows, windows + 1], 1)

        return function

    ours: list[Any] = []
    theirs: list[Any] = []
    options: dict[str, Any] = {"roi_size": (8, 8, 8), "sw_batch_size": 4, "with_coord": True}
    plimsoll.sliding_window(image, recorder(ours), **options)
    expected(image, recorder(theirs), **options)
    assert [row[:4] for row in sorted(set(ours))] == [row[:4] for row in sorted(theirs)]
    np.testing.assert_allclose(sorted(set(ours)), sorted(theirs), rtol=1e-5)


def test_more_classes_than_a_byte_has() -> None:
    image = np.random.default_rng(0).random((1, 6, 7, 8)).astype(np.float32)
    weights = np.random.default_rng(1).standard_normal((300, 2)).astype(np.float32)

    def function(windows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        both = np.concatenate([windows, np.ones_like(windows)], 1)
        logits: np.ndarray[Any, Any] = np.einsum("kc,ncdhw->nkdhw", weights, both)
        return logits

    labels = plimsoll.sliding_window(image, function, (4, 4, 4))
    assert labels.dtype == np.uint16
    np.testing.assert_array_equal(labels, function(image[None])[0].argmax(0))

    def on_tensors(windows: Any) -> Any:
        return torch.from_numpy(function(windows.numpy()))

    tensor = plimsoll.sliding_window(torch.from_numpy(image), on_tensors, (4, 4, 4))
    assert tensor.dtype == torch.int16 and torch.equal(tensor.long(), torch.from_numpy(labels.astype(np.int64)))


def test_a_low_budget_leads_to_strips_with_the_same_labels() -> None:
    image = torch.rand(1, 1, 24, 64, 64, generator=torch.Generator().manual_seed(6))
    module = network(1, 20)
    options: dict[str, Any] = {"roi_size": (12, 16, 16), "sw_batch_size": 2, "mode": "gaussian", "threads": 2}
    whole = plimsoll.Budget("1GiB")
    labels = plimsoll.sliding_window(image, module, budget=whole, **options)
    all_logits = 20 * image.numel() * 4
    assert whole.peak < all_logits and whole.used == 0
    low = plimsoll.Budget(whole.peak * 2 // 3)
    assert torch.equal(plimsoll.sliding_window(image, module, budget=low, **options), labels)
    assert 0 < low.peak <= low.limit and low.used == 0
    with pytest.raises(plimsoll.OverLimit) as caught:
        plimsoll.sliding_window(image, module, budget="500KiB", **options)
    assert caught.value.needed > 0 and caught.value.remedy is not None
    halves = plimsoll.Budget("1GiB")
    half = plimsoll.sliding_window(image, module, budget=halves, sum_dtype="float16", **options)
    assert halves.peak < whole.peak and bool((half != labels).float().mean() < 0.01)


def test_other_types_of_images_and_logits() -> None:
    image = torch.rand(1, 1, 12, 20, 20, generator=torch.Generator().manual_seed(7))
    module = network(1, 3)
    labels = plimsoll.sliding_window(image, module, (8, 8, 8))
    double = plimsoll.sliding_window(image.double(), network(1, 3).double(), (8, 8, 8))
    assert bool((double == labels).float().mean() > 0.999)
    budget = plimsoll.Budget("100MiB")

    def channels_last(windows: Any) -> Any:
        return module(windows).to(memory_format=torch.channels_last_3d)

    last = plimsoll.sliding_window(image, channels_last, (8, 8, 8), budget=budget)
    assert torch.equal(last, labels)
    holders = {holder.name for holder in budget.holders()}
    assert holders >= {"windows", "logits of windows", "copy of the logits of windows"}


def test_functions_and_arguments_that_cannot_be_used_are_refused_by_name() -> None:
    image = torch.rand(1, 1, 8, 8, 8)
    module = network(1, 3)
    refused: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (image, {"roi_size": (4, 4)}, ValueError, "image has the shape"),
        (image, {"overlap": 1.0}, ValueError, "overlap"),
        (image, {"overlap": (0.1, 0.2)}, ValueError, "overlap has 2 numbers"),
        (image, {"mode": "linear"}, ValueError, "mode"),
        (image, {"mode": "gaussian", "sigma_scale": 0.0}, ValueError, "sigma_scale"),
        (image, {"padding_mode": "zeros"}, ValueError, "padding_mode"),
        (image, {"roi_size": (24, 4, 4), "padding_mode": "reflect"}, ValueError, "padding_mode"),
        (image, {"sw_batch_size": 0}, ValueError, "sw_batch_size"),
        (image, {"output": "probabilities"}, ValueError, "output"),
        (image, {"threads": 0}, ValueError, "threads"),
        (image, {"budget": 1.5}, TypeError, "budget"),
        (image.numpy(), {"sw_device": "cpu"}, ValueError, "sw_device has no effect"),
        ("image.nii.gz", {}, TypeError, "image"),
        (image[:, :, :0], {}, ValueError, "empty"),
        (image, {"function": lambda x: (module(x),)}, TypeError, "function returned tuple"),
        (image, {"function": lambda x: module(x)[:, :, :2]}, ValueError, "function returned the shape"),
        (image, {"function": lambda x: module(x)[:, :1]}, ValueError, "one channel"),
        (image, {"function": lambda x: module(x) * float("nan")}, plimsoll.Error, "not finite"),
        (image, {"function": 3}, TypeError, "function is not callable"),
    ]
    for given, options, error, text in refused:
        arguments: dict[str, Any] = {"function": module, "roi_size": (4, 4, 4), **options}
        with pytest.raises(error, match=text.replace("(", r"\(")):
            plimsoll.sliding_window(given, **arguments)


def test_an_error_of_the_function_is_its_own_and_leaves_nothing_reserved() -> None:
    budget = plimsoll.Budget("100MiB")
    calls = itertools.count()
    module = network(1, 3)

    def function(windows: Any) -> Any:
        if next(calls) == 3:
            raise KeyError("from the function")
        return module(windows)

    with pytest.raises(KeyError, match="from the function"):
        plimsoll.sliding_window(torch.rand(1, 1, 20, 20, 20), function, (8, 8, 8), budget=budget)
    gc.collect()
    assert budget.used == 0 and budget.peak > 0


def test_no_gradients_are_kept() -> None:
    def function(windows: Any) -> Any:
        assert not torch.is_grad_enabled()
        return torch.cat([windows, -windows], 1)

    labels = plimsoll.sliding_window(torch.rand(1, 1, 8, 8, 8), function, (4, 4, 4))
    assert torch.is_grad_enabled() and labels.shape == (1, 8, 8, 8)
