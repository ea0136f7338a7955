"""Budgets and the memory of calls."""

from __future__ import annotations

import gc
import pathlib

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


def test_copies_of_strided_arrays_are_counted() -> None:
    budget = plimsoll.Budget("100MiB")
    mask = np.ones((32, 64, 128), np.uint8)
    plimsoll.distance_transform(mask, budget=budget)
    whole = budget.peak
    plimsoll.distance_transform(mask[:, :, ::2], budget=budget)
    assert budget.peak >= mask.size // 2
    assert whole < mask.size // 2 and budget.used == 0
    assert {holder.name for holder in budget.holders()} >= {"copy of input"}


def test_a_budget_of_the_process_is_less_than_its_limit() -> None:
    limit = resident() + (1 << 30)
    budget = plimsoll.Budget.process(limit)
    assert (1 << 29) < budget.limit < limit
    with pytest.raises(plimsoll.Error, match="holds .* already"):
        plimsoll.Budget.process("1MiB")


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


def test_a_transform_holds_its_input_its_output_and_less_than_a_mebibyte() -> None:
    mask = np.ones((256, 128, 128), np.uint8)
    distances = np.zeros(mask.shape, np.float32)
    budget = plimsoll.Budget("1MiB")
    plimsoll.distance_transform(mask, distances=distances, budget=budget, threads=2)
    assert budget.peak <= 1 << 20
