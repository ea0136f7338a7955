"""Every public function names an argument that is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import plimsoll

MASK = np.ones((3, 4, 5), np.uint8)


class Odd:
    """A value that no argument accepts."""


#: Positional and keyword arguments with which each function would begin.
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "betti_numbers": ((MASK,), {}),
    "choose_postprocessing": (("run",), {}),
    "classify": (("model", "images"), {}),
    "compare": (("a", "b"), {}),
    "connected_components": ((MASK,), {}),
    "distance_transform": ((MASK,), {}),
    "doctor": ((), {}),
    "estimate": ((None, (1, 1, 4, 4, 4)), {}),
    "evaluate": (("a", "b"), {}),
    "export": (("model", "output"), {}),
    "fill_holes": ((MASK,), {}),
    "import_models": (("archive", "output"), {}),
    "inspect": (("data",), {}),
    "largest_component": ((MASK,), {}),
    "plan": (("data",), {}),
    "postprocess": (("labels", "output"), {"steps": []}),
    "segment": (("total", "x.nii"), {}),
    "segmentation_labels": (("total",), {}),
    "show_models": (("model",), {}),
    "skeletonize": ((MASK,), {}),
    "sliding_window": ((None, None, (4, 4, 4)), {}),
    "surface_distances": ((MASK, MASK), {}),
    "sweep": (({"grid": {"learning_rate": [0.1]}}, "data"), {"out": "out"}),
    "train": (("data",), {"out": "out"}),
    "verify_model": (("model.plimsoll",), {}),
    "write_phantoms": (("folder",), {}),
}

#: Arguments that take any value: truth values of drop-in functions, classes and modules of PyTorch, and names of files.
ANY: dict[str, set[str]] = {
    "connected_components": {"return_N", "binary_image"},
    "distance_transform": {"return_distances", "return_indices", "squared", "black_border"},
    "skeletonize": {"keep_topology"},
    # A device of PyTorch has a text.
    "segment": {"device", "image", "spacing", "affine"},
    # Checked with PyTorch, in their own tests.
    "estimate": {"*"},
    "sliding_window": {"*"},
}

#: Arguments of `evaluate` for files, which its signature collects.
FOR_FILES = [
    "lesion_overlap",
    "missing",
    "partial",
    "output",
    "images",
    "pictures",
    "unit",
    "config",
    "allow_outside",
    "ram",
    "callbacks",
    "progress",
]

WITHOUT_ARGUMENTS = {"find_plimsoll_bin", "memory"}


def functions() -> list[str]:
    return [name for name in plimsoll.__all__ if inspect.isfunction(getattr(plimsoll, name))]


def arguments(function: str) -> Iterator[tuple[str, str]]:
    parameters = inspect.signature(getattr(plimsoll, function)).parameters.values()
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    names += FOR_FILES if function == "evaluate" else []
    for name in names:
        if not ANY.get(function, set()) & {name, "*"}:
            yield function, name


def test_every_public_function_is_in_the_table() -> None:
    assert sorted(functions()) == sorted({*CALLS, *WITHOUT_ARGUMENTS})


@pytest.mark.parametrize(("function", "argument"), [pair for name in CALLS for pair in arguments(name)])
def test_an_odd_value_is_an_error_that_names_its_argument(function: str, argument: str) -> None:
    given, named = CALLS[function]
    positions = list(inspect.signature(getattr(plimsoll, function)).parameters)[: len(given)]
    values: list[Any] = list(given)
    keywords = dict(named)
    if argument in positions:
        values[positions.index(argument)] = Odd()
    else:
        keywords[argument] = Odd()
    # The name of a fold is a text of anything.
    with pytest.raises((TypeError, ValueError) if argument != "fold" else plimsoll.Error, match=argument):
        getattr(plimsoll, function)(*values, **keywords)


@pytest.mark.parametrize(
    ("function", "argument", "value", "said"),
    [
        ("plan", "threads", "two", "expected a whole number from 0"),
        ("plan", "threads", -1, "threads"),
        ("plan", "patches", "yes", "True or False"),
        ("plan", "loader_threads", 1.5, "whole number"),
        ("train", "parallel", "two", "whole number"),
        ("train", "log_steps", 1, "True or False"),
        ("train", "ranks", 2, "True or False"),
        ("train", "patience", "long", "a number"),
        ("sweep", "missing", "never", "ignore"),
        ("compare", "resamples", "many", "parallel|resamples"),
        ("export", "format", "pickle", "safetensors"),
        ("postprocess", "unit", "inch", "mm"),
        ("postprocess", "steps", [{"step": "keep_largest", "labels": [0]}], "background"),
        ("postprocess", "steps", [{"step": "erode", "labels": [1]}], "keep_largest"),
        ("postprocess", "steps", {"step": "fill_holes", "labels": [1]}, "sequence"),
        ("postprocess", "orthogonal", True, "pass one of them"),
        ("postprocess", "threads", 0, "from 1"),
        ("doctor", "ram", "lots", "lots"),
        ("evaluate", "lesion_overlap", "half", "number"),
        ("write_phantoms", "seed", "one", "whole number"),
        ("write_phantoms", "size", (1, 2, 3), "two numbers"),
        ("segment", "fast", "yes", "True or False"),
        ("segment", "ram", "lots", "lots"),
        ("segment", "threads", 0, "at least 1"),
        ("classify", "votes", "most", "majority"),
        ("classify", "mistakes", -1, "whole number|output"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_expected(function: str, argument: str, value: object, said: str) -> None:
    given, named = CALLS[function]
    with pytest.raises((TypeError, ValueError), match=argument) as caught:
        getattr(plimsoll, function)(*given, **{**named, argument: value})
    assert any(word in str(caught.value) for word in said.split("|"))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("pred", np.zeros((3, 4, 5), np.float32)),
        ("ref", [[object()]]),
        ("spacing", (1.0, float("nan"), 1.0)),
        ("labels", [300]),
        ("metrics", "most"),
        ("surface", Odd()),
        ("tolerance", float("inf")),
        ("ignore", 2.5),
        ("threads", 1.5),
        ("budget", "1GiB"),
    ],
)
def test_scores_of_arrays_name_a_wrong_argument(argument: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=argument):
        plimsoll.evaluate(**{"pred": MASK, "ref": MASK, argument: value})


@pytest.mark.parametrize("limit", [-1, 1.5, True, "2 GB of", None])
def test_a_budget_names_its_limit(limit: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="limit"):
        plimsoll.Budget(limit)


@pytest.mark.parametrize("made", [plimsoll.Model, plimsoll.Run])
def test_models_and_runs_name_their_path(made: Any) -> None:
    with pytest.raises(TypeError, match="path"):
        made(Odd())
