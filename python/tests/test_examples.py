"""The example for each problem of a user runs to its end."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

#: The packages that each example needs beside NumPy.
NEEDS: dict[str, list[str]] = {
    "killed_at_step_800": ["torch"],
    "memory_grows_until_epoch_38": [],
    "one_volume_becomes_7_9_gb": [],
    "swinunetr_out_of_memory": ["torch"],
    "totalsegmentator_without_a_gpu": ["torch"],
}


def test_every_example_is_run() -> None:
    assert sorted(NEEDS) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_runs(name: str) -> None:
    for package in NEEDS[name]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout
