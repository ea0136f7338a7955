"""Threads of Python, with the global lock of the interpreter and without it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable

import numpy as np
import pytest

import plimsoll


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run a function in several threads that begin at the same time, and raise the first of their exceptions."""
    barrier, failures = threading.Barrier(count), []

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter has a global lock")
def test_the_import_does_not_turn_the_global_lock_on() -> None:
    script = "import sys, plimsoll, plimsoll._plimsoll; print(sys._is_gil_enabled())"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert (shown.stdout, shown.stderr) == ("False\n", "")


def test_holders_are_listed_while_other_threads_make_budgets() -> None:
    mask = np.ones((8, 8, 8), bool)

    def work(number: int) -> None:
        for _ in range(200):
            if number % 2 == 0:
                budget = plimsoll.Budget("1MiB")
                plimsoll.connected_components(mask, budget=budget, threads=1)
                assert budget.used == 0 < budget.peak
            else:
                assert all(holder.now <= holder.peak for holder in plimsoll.memory())

    in_threads(8, work)


def test_threads_that_share_a_budget_get_the_results_of_one() -> None:
    mask = np.random.default_rng(0).random((24, 32, 40)) < 0.3
    expected = plimsoll.distance_transform(mask), plimsoll.connected_components(mask)
    budget = plimsoll.Budget("64MiB")

    def work(number: int) -> None:
        for _ in range(10):
            distances = plimsoll.distance_transform(mask, budget=budget, threads=1 + number % 2)
            labels = plimsoll.connected_components(mask, budget=budget, threads=1)
            np.testing.assert_array_equal(distances, expected[0])
            np.testing.assert_array_equal(labels, expected[1])

    in_threads(8, work)
    assert budget.used == 0 < budget.peak <= budget.limit
