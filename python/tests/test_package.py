from __future__ import annotations

import subprocess
import sys

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


def test_the_wheel_carries_the_command_line() -> None:
    try:
        program = plimsoll.find_plimsoll_bin()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    shown = subprocess.run([program, "--version"], capture_output=True, check=True, text=True).stdout
    assert shown.split() == ["plimsoll", plimsoll.__version__]
    module = subprocess.run([sys.executable, "-m", "plimsoll", "--version"], capture_output=True, check=True, text=True)
    assert module.stdout == shown
    failed = subprocess.run([sys.executable, "-m", "plimsoll", "inspect", "nowhere"], capture_output=True)
    assert failed.returncode == 1


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
