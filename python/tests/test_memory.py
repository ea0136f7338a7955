"""Budgets and the memory of calls."""

from __future__ import annotations

import gc
import pathlib
import re
import sys
from typing import Any

import numpy as np
import pytest

import plimsoll


def resident() -> int:
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1])


def test_a_budget_that_is_too_small_is_an_error_with_numbers_and_a_remedy() -> None:
    budget = plimsoll.Budget("1kB")
    assert budget.limit == 1000 and budget.used == 0 and budget.available == 1000
    with pytest.raises(plimsoll.OverLimit) as caught:
        plimsoll.distance_transform(np.ones((64, 64, 64), bool), budget=budget)
    error = caught.value
    assert isinstance(error, MemoryError) and isinstance(error, plimsoll.Error)
    assert error.needed > 1000 and error.available == 1000 and error.limit == 1000 and error.holders == []
    assert error.remedy is not None and "budget" in error.remedy
    enough = plimsoll.Budget(error.needed)
    plimsoll.distance_transform(np.ones((64, 64, 64), bool), budget=enough)
    assert enough.used == 0 and enough.peak == error.needed


def test_copies_of_arrays_are_counted() -> None:
    budget = plimsoll.Budget("100MiB")
    mask = np.ones((32, 64, 128), np.uint16)
    plimsoll.distance_transform(mask, budget=budget)
    whole = budget.peak
    plimsoll.distance_transform(mask[:, :, ::2], budget=budget)
    assert budget.peak == whole and [holder.name for holder in budget.holders()] == ["scratch of a distance transform"]
    plimsoll.distance_transform(mask.astype(mask.dtype.newbyteorder("S")), budget=budget)
    assert budget.peak >= mask.size // 2
    assert whole < mask.size // 2 and budget.used == 0
    assert {holder.name for holder in budget.holders()} >= {"copy of input"}


def test_a_budget_of_the_process_is_less_than_its_limit() -> None:
    limit = resident() + (1 << 30)
    budget = plimsoll.Budget.process(limit)
    assert (1 << 29) < budget.limit < limit
    with pytest.raises(plimsoll.Error, match="holds .* already"):
        plimsoll.Budget.process("1MiB")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mapped files are read from procfs")
def test_an_array_of_a_file_is_no_code(dataset: pathlib.Path, small: dict[str, Any], tmp_path: pathlib.Path) -> None:
    code = plimsoll.plan(dataset, threads=1, patches=False, **small).parts["code"]
    array = np.memmap(tmp_path / "scan.raw", np.uint8, "w+", shape=(64 << 20,))
    array[: 8 << 20] = 1
    assert plimsoll.plan(dataset, threads=1, patches=False, **small).parts["code"] == code
    with pytest.raises(plimsoll.Error, match=r"code and (\d[\d.]*) MiB mapped files such as numpy\.memmap") as caught:
        plimsoll.Budget.process("1MiB")
    found = re.search(r"code and ([\d.]+) MiB mapped", str(caught.value))
    assert found is not None and float(found[1]) >= 8
    del array


@pytest.mark.parametrize(
    ("limit", "error"), [("2 GB of", ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_limits_are_bytes(limit: object, error: type) -> None:
    with pytest.raises(error):
        plimsoll.Budget(limit)  # type: ignore[arg-type]


def test_holders_of_all_calls_are_listed() -> None:
    plimsoll.distance_transform(np.ones((8, 8, 8), bool))
    assert any(holder.name == "scratch of a distance transform" for holder in plimsoll.memory())
    assert all(holder.now == 0 for holder in plimsoll.memory())


def test_a_thousand_calls_leave_no_memory_behind() -> None:
    mask = np.random.default_rng(0).random((16, 32, 32)) < 0.5

    def calls(count: int) -> None:
        for _ in range(count):
            plimsoll.distance_transform(mask, return_indices=True)
            plimsoll.connected_components(mask)
            plimsoll.evaluate(mask, mask, metrics="all")
            with pytest.raises(ValueError):
                plimsoll.distance_transform(mask, threads=0)

    calls(100)
    gc.collect()
    before = resident()
    calls(1000)
    gc.collect()
    assert resident() - before < 2 << 20


@pytest.mark.parametrize("to", ["background", "labels", "signed"])
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.int64])
def test_a_transform_holds_its_input_its_output_and_less_than_a_mebibyte(to: Any, dtype: type) -> None:
    whole = np.ones((256, 256, 512), dtype)
    whole[100:, :, ::3] = 0
    distances = np.zeros((256, 256, 256), np.float32)
    for mask in (whole[:, :, :256], whole[::-1, :, ::2]):
        budget = plimsoll.Budget("1MiB")
        plimsoll.distance_transform(mask, distances=distances, to=to, budget=budget, threads=2)
        assert budget.peak <= 1 << 20
        assert [holder.name for holder in budget.holders()] == ["scratch of a distance transform"]


SELECTIONS = [np.s_[:], np.s_[::-1, 1:], np.s_[:, ::2, ::-3], np.s_[..., 5:], np.s_[3], np.s_[:, :, 4], np.s_[:, 3:4]]


@pytest.mark.parametrize("to", ["background", "labels", "signed"])
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_any_type_and_strides_give_the_same_bits(to: Any, dtype: type) -> None:
    rng = np.random.default_rng(3)
    blobs = np.kron(rng.integers(0, 3, (7, 9, 20)), np.ones((3, 4, 7), np.int64))
    noise = rng.integers(0, 40, blobs.shape)
    for labels in (blobs, np.where(rng.random(blobs.shape) < 0.9, blobs, noise)):
        whole = labels.astype(dtype)
        plain = whole.astype(np.uint8)
        for select in SELECTIONS:
            expected = plimsoll.distance_transform(np.ascontiguousarray(plain[select]), to=to)
            np.testing.assert_array_equal(plimsoll.distance_transform(whole[select], to=to), expected)
        # Neither aligned nor of whole strides.
        record = np.zeros(whole.shape, [("odd", np.uint8), ("label", dtype)])
        record["label"] = whole
        expected = plimsoll.distance_transform(plain, to=to)
        np.testing.assert_array_equal(plimsoll.distance_transform(record["label"], to=to), expected)


def test_masks_of_64_bits_may_have_any_values_and_label_maps_may_not() -> None:
    mask = np.array([[0, 2**32, -1, 0]])
    np.testing.assert_array_equal(plimsoll.distance_transform(mask), [[0, 1, 1, 0]])
    with pytest.raises(ValueError, match="input has labels below 0 or above 4294967295"):
        plimsoll.distance_transform(mask, to="labels")
