"""Batches of patches for PyTorch."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nibabel = pytest.importorskip("nibabel")

from png import write_png  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import plimsoll  # noqa: E402
from plimsoll import _plimsoll  # noqa: E402
from plimsoll.torch import Patches  # noqa: E402

PATCH = (8, 16, 24)


def resident(key: str = "VmRSS") -> int:
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith(f"{key}:")).split()[1])


def loader_threads() -> int:
    names = [path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    return names.count("loader")


def write(path: pathlib.Path, voxels: np.ndarray, spacing: tuple[float, float, float] = (1.0, 1.0, 2.0)) -> None:
    """Write an array of (depth, height, width); the spacing is of width, height and depth."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(voxels.T, np.diag([*spacing, 1.0])), path)


def volumes(number: int, shape: tuple[int, int, int] = (14, 40, 48)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    label = np.zeros(shape, np.uint8)
    label[4:9, 10:30, 12:36] = 1
    image = rng.normal(100, 10, shape) + 80 * label
    return image.astype(np.int16), label


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Four cases in `raw` and `seg`."""
    folder = tmp_path_factory.mktemp("vessels")
    for number in range(4):
        image, label = volumes(number)
        write(folder / "raw" / f"v{number}.nii.gz", image)
        write(folder / "seg" / f"v{number}.nii.gz", label)
    return folder


def bits(batches: Any) -> list[tuple[bytes, bytes, list[str]]]:
    return [(batch["image"].numpy().tobytes(), batch["label"].numpy().tobytes(), batch["case"]) for batch in batches]


def patches(dataset: Any, **arguments: Any) -> Patches:
    arguments = {"batch_size": 2, "budget": "64MiB", "iterations_per_epoch": 5, "seed": 1, "threads": 2} | arguments
    return Patches(dataset, arguments.pop("patch_size", PATCH), **arguments)


def test_batches_have_the_shapes_and_types_that_are_documented(folder: pathlib.Path) -> None:
    stream = patches(folder)
    assert len(stream) == 5 and stream.cases == ["v0", "v1", "v2", "v3"] and stream.channels == ["image"]
    assert stream.labels["background"] == 0 and stream.spacing == (2.0, 1.0, 1.0)
    for loader in (stream, DataLoader(stream, batch_size=None, num_workers=0)):
        count = 0
        for batch in loader:
            assert batch["image"].shape == (2, 1, *PATCH) and batch["image"].dtype == torch.float32
            assert batch["label"].shape == (2, 1, *PATCH) and batch["label"].dtype == torch.uint8
            assert len(batch["case"]) == 2 and set(batch["case"]) <= set(stream.cases)
            assert set(batch["label"].unique().tolist()) <= {0, 1}
            count += 1
        assert count == 5
    wide = next(iter(patches(folder, label_dtype=torch.int64)))
    narrow = next(iter(patches(folder)))
    assert wide["label"].dtype == torch.int64 and torch.equal(wide["label"], narrow["label"].long())
    slices = patches(folder, patch_size=(16, 24))
    assert next(iter(slices))["image"].shape == (2, 1, 1, 16, 24) and slices.spacing == (1.0, 1.0)


def test_a_patch_without_augmentation_is_a_part_of_the_normalised_volume(folder: pathlib.Path) -> None:
    stream = patches(folder, augmentation=False, batch_size=1, oversample_foreground=0.0)
    for batch in stream:
        image, label = volumes(int(batch["case"][0][1:]))
        expected = ((image - image.mean(dtype=np.float64)) / image.std(dtype=np.float64)).astype(np.float32)
        found, labels = batch["image"][0, 0].numpy(), batch["label"][0, 0].numpy()
        windows = np.lib.stride_tricks.sliding_window_view(expected, PATCH)
        corners = np.argwhere(np.abs(windows[..., 0, 0, 0] - found[0, 0, 0]) < 1e-4)
        matches = [tuple(at) for at in corners if np.allclose(windows[tuple(at)], found, atol=1e-4)]
        assert len(matches) == 1
        assert np.array_equal(np.lib.stride_tricks.sliding_window_view(label, PATCH)[matches[0]], labels)


def test_tensors_are_the_buffers_of_the_threads(folder: pathlib.Path) -> None:
    stream = patches(folder, iterations_per_epoch=None)
    handed: list[int] = []
    take = stream._stream.next

    class Recording:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def next(self, epoch: int) -> Any:
            image, label, cases = take(epoch)
            for array in (image, label):
                # The base is the batch in Rust, which owns the memory.
                assert isinstance(array.base, _plimsoll.LentBatch) and not array.flags.owndata
                assert array.flags.writeable and array.flags.c_contiguous
            handed.extend((image.ctypes.data, label.ctypes.data))
            return image, label, cases

    inner, stream._stream = stream._stream, Recording()  # type: ignore[assignment]
    seen, loader = [], iter(DataLoader(stream, batch_size=None, num_workers=0))
    used = []
    for _ in range(30):
        batch = next(loader)
        seen.extend((batch["image"].data_ptr(), batch["label"].data_ptr()))
        del batch
        used.append(stream.budget.used)
    assert seen == handed
    # Two threads and three more batches, over and over.
    assert len(set(seen[::2])) <= 5 and len(set(seen[1::2])) <= 5
    holders = {holder.name: holder.now for holder in stream.budget.holders()}
    assert holders["batches and threads"] >= 5 * 2 * 5 * np.prod(PATCH)
    assert len(set(used)) == 1


def test_a_tensor_keeps_its_values_after_its_stream_is_gone(folder: pathlib.Path) -> None:
    stream = patches(folder)
    budget = stream.budget
    batch = next(iter(stream))
    image, expected = batch["image"][1], batch["image"][1].clone()
    del stream, batch
    gc.collect()
    assert budget.used > 0 and torch.equal(image, expected)
    image.mul_(2.0)
    assert torch.equal(image, 2 * expected)
    del image
    gc.collect()
    assert budget.used == 0


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_same_seed_gives_the_same_bits(folder: pathlib.Path, threads: int) -> None:
    expected = bits(patches(folder, threads=1, budget="64MiB"))
    assert bits(patches(folder, threads=threads, budget="40MiB", prefetch=2)) == expected
    assert bits(patches(folder, threads=threads, seed=2)) != expected


def test_it_resumes_with_the_same_bits(folder: pathlib.Path) -> None:
    whole = patches(folder)
    expected = bits(whole) + bits(whole)
    first = patches(folder, threads=1)
    loader = DataLoader(first, batch_size=None, num_workers=0)
    found = bits(loader)
    for batch in loader:
        found += bits([batch])
        if len(found) == 7:
            break
    state = json.loads(json.dumps(first.state_dict()))
    second = patches(folder, threads=2)
    second.load_state_dict(state)
    found += bits(DataLoader(second, batch_size=None, num_workers=0))
    assert found == expected
    with pytest.raises(ValueError, match="state_dict was saved with seed=1, but these patches have seed=2"):
        patches(folder, seed=2).load_state_dict(state)
    with pytest.raises(ValueError, match="state_dict is not the state"):
        second.load_state_dict({"step": 3})


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("stop", [3, 5, 7])
def test_a_stateful_data_loader_resumes_with_the_same_bits(folder: pathlib.Path, stop: int) -> None:
    loaders = pytest.importorskip("torchdata.stateful_dataloader")
    whole = patches(folder)
    expected = bits(whole) + bits(whole)
    found: list[Any] = []
    first = loaders.StatefulDataLoader(patches(folder), batch_size=None, num_workers=0)
    while len(found) < stop:
        for batch in first:
            found += bits([batch])
            if len(found) == stop:
                state = first.state_dict()
                break
    second = loaders.StatefulDataLoader(patches(folder, threads=1), batch_size=None, num_workers=0)
    second.load_state_dict(state)
    while len(found) < len(expected):
        before = len(found)
        found += bits(second)
        assert len(found) > before
    assert found == expected


def test_validation_has_the_same_patches_each_time(folder: pathlib.Path) -> None:
    stream = patches(folder, fold=0, section="validation")
    training = patches(folder, fold=0)
    assert len(stream.cases) == 1 and sorted(stream.cases + training.cases) == ["v0", "v1", "v2", "v3"]
    first = bits(stream)
    assert bits(stream) == first and len(first) == 5


def test_lists_and_folders_of_all_layouts_have_the_same_patches(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    cases = [{"image": folder / "raw" / f"v{n}.nii.gz", "label": folder / "seg" / f"v{n}.nii.gz"} for n in range(4)]
    expected = bits(patches(cases))
    assert expected == bits(patches(cases, labels={"background": 0, "vessel": 1}))
    assert expected == bits(patches(folder))
    listed = [{key: os.path.relpath(path, folder) for key, path in case.items()} for case in cases]
    (folder / "datalist.json").write_text(json.dumps({"training": listed}))
    assert expected == bits(patches(folder / "datalist.json"))
    (folder / "datalist.json").unlink()
    for number in range(4):
        image, label = volumes(number)
        write(tmp_path / "imagesTr" / f"v{number}_0000.nii.gz", image)
        write(tmp_path / "labelsTr" / f"v{number}.nii.gz", label)
    described = {"channel_names": {"0": "light"}, "labels": {"background": 0, "vessel": 1}, "numTraining": 4}
    (tmp_path / "dataset.json").write_text(json.dumps(described | {"file_ending": ".nii.gz"}))
    assert expected == bits(patches(tmp_path))
    outside = tmp_path / "list.json"
    outside.write_text(json.dumps({"training": [{key: str(path) for key, path in case.items()} for case in cases]}))
    with pytest.raises(plimsoll.Error, match="allow_outside=True"):
        patches(outside)
    assert expected == bits(patches(outside, allow_outside=True))


def test_pictures_are_slices(tmp_path: pathlib.Path) -> None:
    for number in range(4):
        image, label = volumes(number)
        write_png(tmp_path / "images" / f"p{number}.png", image[5])
        write_png(tmp_path / "masks" / f"p{number}.png", label[5])
    stream = patches(tmp_path, patch_size=(16, 24))
    assert len(stream.classes) == 2 and set(stream.labels.values()) == {0, 1}
    seen = set()
    for batch in stream:
        assert batch["image"].shape == (2, 1, 1, 16, 24) and batch["label"].shape == (2, 1, 1, 16, 24)
        seen.update(batch["label"].unique().tolist())
    assert seen == {0, 1}


def test_an_outlier_is_never_resampled_as_a_whole(tmp_path: pathlib.Path) -> None:
    for number in range(3):
        image, label = volumes(number)
        write(tmp_path / "raw" / f"v{number}.nii.gz", image, (0.25, 0.25, 0.25))
        write(tmp_path / "seg" / f"v{number}.nii.gz", label, (0.25, 0.25, 0.25))
    # 4 GB in 32 bits at 0.25 mm: 640 × 1280 × 1280 voxels.
    image, label = volumes(3, (32, 256, 256))
    write(tmp_path / "raw" / "v3.nii.gz", image, (1.25, 1.25, 5.0))
    write(tmp_path / "seg" / "v3.nii.gz", label, (1.25, 1.25, 5.0))
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # Forgets the largest resident size.
    before = resident()
    stream = patches(tmp_path, patch_size=(16, 48, 48), spacing=(0.25,) * 3, budget="32MiB", iterations_per_epoch=40)
    seen = set()
    for batch in stream:
        seen.update(batch["case"])
        assert stream.budget.used <= stream.budget.limit
    assert "v3" in seen and stream.budget.peak <= stream.budget.limit == 32 << 20
    assert resident("VmHWM") - before < (32 << 20) + (16 << 20)


def test_a_budget_that_is_too_small_is_refused_with_one_that_would_do(folder: pathlib.Path) -> None:
    limit, refused = 1 << 16, 0
    while True:
        try:
            stream = patches(folder, budget=limit)
            break
        except plimsoll.OverLimit as error:
            assert error.limit == limit and error.remedy is not None
            limit, refused = error.limit - error.available + error.needed, refused + 1
            assert refused < 12
    assert refused > 0 and len(bits(stream)) == 5 and stream.budget.peak <= limit


def test_batches_that_are_kept_are_refused_when_buffers_run_out(folder: pathlib.Path) -> None:
    stream = patches(folder, prefetch=2, iterations_per_epoch=None)
    kept = []
    with pytest.raises(plimsoll.Error, match=r"4 batches are still in use.*\.clone\(\)"):
        for batch in stream:
            kept.append(batch)
    assert len(kept) == 4
    clones = [batch["image"].clone() for batch in patches(folder, iterations_per_epoch=9)]
    assert len(clones) == 9


def test_workers_are_told_what_to_do_instead(folder: pathlib.Path) -> None:
    stream = patches(folder)
    next(iter(stream))
    with pytest.raises(Exception, match="num_workers=0"):
        next(iter(DataLoader(stream, batch_size=None, num_workers=1, multiprocessing_context="fork")))
    with pytest.raises(TypeError, match="num_workers=0"):
        pickle.dumps(stream)
    # A process that is forked otherwise neither waits for threads that it does not have nor crashes.
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(iter(stream))
        except plimsoll.Error as error:
            code = 0 if "num_workers=0" in str(error) else 2
        del stream
        gc.collect()
        os._exit(code)
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    assert len(bits(stream)) == 5


def test_threads_end_with_the_stream(folder: pathlib.Path) -> None:
    gc.collect()
    before = loader_threads()
    for round_ in range(5):
        stream = patches(folder, threads=3)
        assert loader_threads() == before, "threads start with the first batch"
        next(iter(stream))
        # A thread names itself once it runs.
        deadline = time.monotonic() + 10
        while loader_threads() < before + 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert loader_threads() == before + 3
        if round_ == 0:
            stream.close()
            assert loader_threads() == before
            assert len(bits(stream)) == 5
        del stream
        gc.collect()
        assert loader_threads() == before


def test_an_interrupt_ends_the_waiting(tmp_path: pathlib.Path) -> None:
    # Large patches of small voxels take seconds.
    image, label = volumes(0, (24, 96, 96))
    for number in range(2):
        write(tmp_path / "raw" / f"v{number}.nii.gz", image)
        write(tmp_path / "seg" / f"v{number}.nii.gz", label)
    # Shells start background processes with interrupts ignored, which children inherit.
    script = f"""
import signal, time
from plimsoll.torch import Patches
signal.signal(signal.SIGINT, signal.default_int_handler)
augmentation = {{"p_elastic": 1.0, "p_gaussian_blur": 1.0, "p_rotation": 1.0}}
settings = dict(batch_size=64, threads=1, prefetch=1, budget="8GiB", augmentation=augmentation)
stream = Patches({str(tmp_path)!r}, (192, 192, 192), **settings)
print("waiting", flush=True)
try:
    next(iter(stream))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "waiting\n"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        start = time.monotonic()
        assert child.stdout.readline() == "interrupted\n"
        assert time.monotonic() - start < 2.0


def test_threads_of_python_share_a_stream(folder: pathlib.Path) -> None:
    # Each of three threads holds a batch while it takes the next.
    stream = patches(folder, iterations_per_epoch=40, prefetch=6)
    expected = sorted(bits(patches(folder, iterations_per_epoch=40)))
    epoch, found = stream._stream.begin(), []

    def take() -> None:
        while (batch := stream._next(epoch)) is not None:
            found.extend(bits([batch]))

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == expected


def test_errors_name_the_case(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for number in range(3):
        image, label = volumes(number)
        write(tmp_path / "raw" / f"v{number}.nii.gz", image)
        write(tmp_path / "seg" / f"v{number}.nii.gz", label)
    stream = patches(tmp_path, cache=False)
    (tmp_path / "raw" / "v1.nii.gz").write_bytes(b"torn")
    with pytest.raises(plimsoll.Error, match=r"case v1: .*v1\.nii\.gz"):
        for _ in range(20):
            bits(stream)
    with pytest.raises(plimsoll.Error, match="v1"):
        patches(tmp_path, cache=False)
    with pytest.warns(UserWarning, match="v1"):
        assert patches(tmp_path, cache=False, skip_bad_cases=True).cases == ["v0", "v2"]


def test_a_shared_budget_is_not_exceeded(folder: pathlib.Path) -> None:
    budget = plimsoll.Budget("64MiB")
    first, second = patches(folder, budget=budget), patches(folder, budget=budget, section="validation")
    assert bits(first) and bits(second) and first.budget is budget
    used = budget.used
    del first
    gc.collect()
    assert 0 < budget.used < used and budget.peak <= budget.limit


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"dataset": 3}, TypeError, "dataset"),
        ({"dataset": []}, ValueError, "dataset"),
        ({"dataset": [{"image": "a.nii"}]}, ValueError, r"dataset\[0\] has no 'label'"),
        ({"dataset": [{"image": 1, "label": "b"}]}, TypeError, r"dataset\[0\]\['image'\]"),
        ({"dataset": "/nowhere"}, plimsoll.Error, "/nowhere"),
        ({"patch_size": 16}, TypeError, "patch_size"),
        ({"patch_size": (16,)}, ValueError, "patch_size"),
        ({"patch_size": (0, 16, 16)}, ValueError, "patch_size"),
        ({"patch_size": (1.5, 16, 16)}, TypeError, "patch_size"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"batch_size": -1}, ValueError, "batch_size"),
        ({"spacing": (1.0, float("nan"), 1.0)}, ValueError, "spacing"),
        ({"spacing": (1.0,)}, ValueError, "spacing"),
        ({"spacing": "isotropic"}, ValueError, "spacing"),
        ({"augmentation": {"p_rotate": 0.5}}, ValueError, "augmentation.*p_rotate"),
        ({"augmentation": {"p_rotation": 2}}, ValueError, "augmentation.*p_rotation"),
        ({"augmentation": 1}, TypeError, "augmentation"),
        ({"section": "test"}, ValueError, "section"),
        ({"fold": 17}, plimsoll.Error, "17"),
        ({"seed": -1}, ValueError, "seed"),
        ({"budget": "lots"}, ValueError, "lots"),
        ({"iterations_per_epoch": 0}, ValueError, "iterations_per_epoch"),
        ({"oversample_foreground": 1.5}, ValueError, "oversample_foreground"),
        ({"label_dtype": torch.float32}, ValueError, "label_dtype"),
        ({"threads": 0}, ValueError, "threads"),
        ({"prefetch": 0}, ValueError, "prefetch"),
        ({"channels": ["a", "b"]}, plimsoll.Error, "2"),
    ],
)
def test_bad_arguments_are_named(
    folder: pathlib.Path, arguments: dict[str, Any], error: type[Exception], named: str
) -> None:
    call: dict[str, Any] = {"dataset": folder} | arguments
    with pytest.raises(error, match=named):
        patches(call.pop("dataset"), **call)
