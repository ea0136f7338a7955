from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import plimsoll

# numpy is imported first: its cost is not the package's.
IMPORT = """
import sys, time, numpy
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096
before, held = time.process_time(), resident()
import plimsoll
print(time.process_time() - before, resident() - held, sorted(sys.modules))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from procfs")
def test_the_import_is_short_and_small_and_loads_no_other_package() -> None:
    def measure() -> tuple[float, int, str]:
        shown = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, check=True, text=True).stdout
        seconds, held, modules = shown.split(" ", 2)
        return float(seconds), int(held), modules

    # The first reads the files of the package from the disk.
    found = [measure() for _ in range(5)]
    assert min(seconds for seconds, _, _ in found) <= 0.05
    assert max(held for _, held, _ in found) <= 15 << 20
    for name in ("torch", "pandas", "nibabel", "SimpleITK", "monai", "IPython", "scipy"):
        assert f"'{name}'" not in found[0][2]


def test_every_public_name_exists() -> None:
    assert list(plimsoll.__all__) == sorted(plimsoll.__all__)
    for name in plimsoll.__all__:
        assert hasattr(plimsoll, name)
    assert set(plimsoll.__all__) <= set(dir(plimsoll))
    with pytest.raises(AttributeError, match="no attribute 'Modell'"):
        plimsoll.Modell  # noqa: B018


def test_the_script_and_the_module_are_the_command_line() -> None:
    script = plimsoll.find_plimsoll_bin()
    shown = subprocess.run([script, "--version"], capture_output=True, check=True, text=True).stdout
    assert shown.split() == ["plimsoll", plimsoll.__version__]
    module = subprocess.run([sys.executable, "-m", "plimsoll", "--version"], capture_output=True, check=True, text=True)
    assert module.stdout == shown
    failed = subprocess.run([sys.executable, "-m", "plimsoll", "inspect", "nowhere"], capture_output=True)
    assert failed.returncode == 1
    wrong = subprocess.run([script, "inspct"], capture_output=True, text=True)
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: ") and "Traceback" not in wrong.stderr


def test_a_job_of_a_batch_system_starts_the_script_again(dataset: Path, tmp_path: Path) -> None:
    script, job = plimsoll.find_plimsoll_bin(), tmp_path / "job.sbatch"
    arguments = [str(dataset), "--nodes", "2", "--ram", "1GiB", "--threads", "2", "--slurm", str(job)]
    train = ["train", *arguments, "--out", str(tmp_path / "run"), "--net", "dynunet", "--patch-size", "16,16,16"]
    for command in ([script], [sys.executable, "-m", "plimsoll"]):
        job.unlink(missing_ok=True)
        subprocess.run([*command, *train], capture_output=True, check=True)
        assert f"{script} train {dataset}" in job.read_text()


@pytest.mark.skipif(os.name == "nt", reason="Windows has other signals")
def test_the_script_ends_by_signals_as_a_program(dataset: Path, tmp_path: Path) -> None:
    script, out = plimsoll.find_plimsoll_bin(), tmp_path / "run"
    small = "--fold 0 --ram 1GiB --threads 2 --net dynunet --features 8,16,24 --patch-size 16,16,16 --epochs 50"
    command = [script, "train", str(dataset), "--out", str(out), *small.split()]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not (out / "fold_0" / "checkpoint_latest.safetensors").exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        errors = process.stderr.read()
    assert process.returncode == 130 and "error: SIGINT: stopped after step" in errors and "Traceback" not in errors
    # The reader of a pipe goes away.
    with subprocess.Popen([script, "settings"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == -signal.SIGPIPE and errors == ""


def test_a_missing_command_line_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    import plimsoll._find_bin as find_bin

    monkeypatch.setattr(find_bin, "_folders", lambda: ["/nowhere"])
    with pytest.raises(FileNotFoundError, match="/nowhere"):
        plimsoll.find_plimsoll_bin()


def test_jobs_do_not_leak() -> None:
    """A thousand failing jobs leave memory flat."""
    if not sys.platform.startswith("linux"):
        pytest.skip("resident memory is read from procfs")

    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    def fail(times: int) -> None:
        for _ in range(times):
            with pytest.raises(plimsoll.Error):
                plimsoll.Run("/nowhere/at/all")

    fail(200)
    before = resident()
    fail(1000)
    assert resident() - before <= 4 << 20
