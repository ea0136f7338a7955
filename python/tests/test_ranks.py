"""Trainings by several processes of `mpiexec`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

import plimsoll

SCRIPT = """
import sys
from pathlib import Path
import plimsoll

def told(event):
    if isinstance(event, plimsoll.EpochEnd):
        (Path(sys.argv[2]) / f"{len(list(Path(sys.argv[2]).glob('*')))}.told").touch()

settings = dict(patch_size=(8, 8, 8), batch_size=4, shards=2, epochs=2, iterations_per_epoch=2)
settings |= dict(validation_iterations=1, net="dynunet", features=[4, 6], seed=3)
common = dict(ram="400MiB", threads=1, progress=False)
dataset, told_in = sys.argv[1:3]
Path(told_in).mkdir(exist_ok=True)
for out in sys.argv[3:]:
    run = plimsoll.train(dataset, out=out, callbacks=told, **common, **settings)
    assert run.metrics["epoch"].tolist() == [0, 1]
    if run.result is not None:
        print("first", run.result["folds"][0]["fold"], run.folds["0"].validation is not None, flush=True)
    else:
        print("other", flush=True)
"""


@pytest.fixture(scope="module")
def mpiexec() -> str:
    """The launcher of an MPI whose library is installed beside it, as PyPI's `mpich`."""
    path = shutil.which("mpiexec")
    if path is None:
        pytest.skip("there is no mpiexec: pip install mpich")
    libraries = Path(path).parent.parent / "lib"
    if not any((libraries / name).exists() for name in ("libmpi_abi.so.1", "libmpi.so.12")):
        pytest.skip(f"{libraries} has no library of MPICH")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks") / "vessels"
    plimsoll.write_phantoms(folder, cases=4, test_cases=0, size=(16, 20), outlier=False)
    return folder


def start(command: list[str], script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    made = [*command, sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(made, capture_output=True, text=True, timeout=300)


def files(out: Path) -> list[bytes]:
    return [(out / "fold_0" / name).read_bytes() for name in ("checkpoint_final.safetensors", "metrics.jsonl")]


def test_ranks_write_the_bytes_of_one_process_and_may_train_again(mpiexec: str, data: Path, tmp_path: Path) -> None:
    alone = start([], SCRIPT, data, tmp_path / "alone told", tmp_path / "alone")
    assert alone.returncode == 0, alone.stderr
    ranks = start([mpiexec, "-n", "2"], SCRIPT, data, tmp_path / "told", tmp_path / "one", tmp_path / "two")
    assert ranks.returncode == 0, ranks.stderr
    assert sorted(ranks.stdout.split("\n")) == ["", *["first 0 True"] * 2, *["other"] * 2]
    assert files(tmp_path / "one") == files(tmp_path / "two") == files(tmp_path / "alone")
    # The first rank alone calls callbacks: two epochs of two runs.
    assert len(list((tmp_path / "told").iterdir())) == 4


def test_an_error_of_one_rank_ends_all(mpiexec: str, data: Path, tmp_path: Path) -> None:
    script = """
import os, sys, plimsoll
settings = dict(patch_size=(8, 8, 8), batch_size=4, shards=2, epochs=2, iterations_per_epoch=2, features=[4, 6])
# The ranks see other data sets.
data = sys.argv[1] if os.environ["PMI_RANK"] == "0" else "/nowhere"
plimsoll.train(data, out=sys.argv[2], ram="400MiB", threads=1, net="dynunet", **settings)
"""
    ended = start([mpiexec, "-n", "2"], script, data, tmp_path / "run")
    assert ended.returncode != 0 and "/nowhere" in ended.stderr


def test_an_exception_after_a_training_ends_all(mpiexec: str, data: Path, tmp_path: Path) -> None:
    script = SCRIPT + "    assert run.result is not None, 'no result'\n"
    ended = start([mpiexec, "-n", "2"], script, data, tmp_path / "told", tmp_path / "one", tmp_path / "two")
    assert ended.returncode != 0 and "no result" in ended.stderr


def test_one_fold_is_trained_by_several_ranks(mpiexec: str, data: Path, tmp_path: Path) -> None:
    script = """
import sys, plimsoll
try:
    plimsoll.train(sys.argv[1], out=sys.argv[2], one_vs_one=True, progress=False)
except plimsoll.Error as error:
    print(error, flush=True)
try:
    plimsoll.train(sys.argv[1], out=sys.argv[2], folds=[0, 1], ram="400MiB", threads=1, progress=False)
except plimsoll.Error as error:
    print(error, flush=True)
"""
    ended = start([mpiexec, "-n", "2"], script, data, tmp_path / "run")
    assert ended.stdout.count("one_vs_one trains in one") == 2
    # The first rank whose script ends then ends the other.
    assert "several ranks train one fold" in ended.stdout


def test_a_rank_that_hangs_is_named_and_one_that_pauses_between_trainings_is_not(
    mpiexec: str, data: Path, tmp_path: Path
) -> None:
    script = """
import os, signal, subprocess, sys, time
import plimsoll

settings = dict(patch_size=(8, 8, 8), batch_size=4, shards=2, epochs=2, iterations_per_epoch=2, features=[4, 6])
common = dict(ram="400MiB", threads=1, progress=False, net="dynunet", skip_validation=True, **settings)
is_first = os.environ["PMI_RANK"] == "0"
plimsoll.train(sys.argv[1], out=sys.argv[2], patience=1, **common)
try:
    plimsoll.train(sys.argv[1], out=sys.argv[3], patience=2, **common)
except ValueError as error:
    print(error, flush=True)
if not is_first:
    time.sleep(4)
plimsoll.train(sys.argv[1], out=sys.argv[3], **common)
print("both", flush=True)
if not is_first:
    # Another process stops this one when it trains.
    stop = f"import os, time; time.sleep(2); os.kill({os.getpid()}, {int(signal.SIGSTOP)})"
    subprocess.Popen([sys.executable, "-c", stop])
common["epochs"] = 100000
plimsoll.train(sys.argv[1], out=sys.argv[4], **common)
"""
    begin = time.monotonic()
    ended = start([mpiexec, "-n", "2"], script, data, *(tmp_path / name for name in ("one", "two", "three")))
    assert ended.returncode != 0
    assert ended.stdout.count("patience is 2 s, but was 1 s in the first training") == 2, ended.stdout
    assert ended.stdout.count("both") == 2, ended.stderr
    assert re.search(r"rank 0: error: rank 1 on .* hangs: it has made no progress for 1 s\nhint: ", ended.stderr)
    # It would end no earlier than the training.
    assert time.monotonic() - begin < 120


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a launcher that has started two processes."""
    for name in ("PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    if os.name == "nt":
        pytest.skip("ranks do not communicate on Windows")
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")


def test_mpi_that_mpi4py_has_initialised_is_refused(
    rank: None, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", types.SimpleNamespace(Is_initialized=lambda: True))
    for ranks in (None, True):
        with pytest.raises(plimsoll.Error, match=r"mpi4py\.rc\.initialize = False.*ranks=False"):
            plimsoll.train(data, out=tmp_path / "run", ranks=ranks)
    assert not (tmp_path / "run").exists()


def test_a_process_of_a_launcher_may_train_alone(rank: None, data: Path, tmp_path: Path) -> None:
    settings = {"patch_size": (8, 8, 8), "epochs": 1, "iterations_per_epoch": 1, "net": "dynunet", "features": [4, 6]}
    run = plimsoll.train(data, out=tmp_path / "run", threads=1, ranks=False, skip_validation=True, **settings)
    assert run.result is not None and run.metrics["epoch"].tolist() == [0]


def test_variables_that_make_no_sense_are_named(
    rank: None, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMI_RANK", "7")
    with pytest.raises(plimsoll.Error, match="PMI_RANK is 7, but PMI_SIZE is 2"):
        plimsoll.train(data, out=tmp_path / "run")


def test_ranks_without_a_launcher_are_refused(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(plimsoll.Error, match="mpiexec"):
        plimsoll.train(data, out=tmp_path / "run", ranks=True)
    with pytest.raises(ValueError, match="patience is the wait for other ranks"):
        plimsoll.train(data, out=tmp_path / "run", patience=5)
    for patience in (0, 0.5, -1.0):
        with pytest.raises(ValueError, match="patience is .* pass at least 1 s"):
            plimsoll.train(data, out=tmp_path / "run", patience=patience)
