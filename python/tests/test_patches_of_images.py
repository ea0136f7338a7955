"""Batches of whole images with classes for PyTorch."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from png import write_png  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import plimsoll  # noqa: E402
from plimsoll.torch import Patches  # noqa: E402

SIZE = (20, 24)
CLASSES = ["bright", "dark", "striped"]
#: Means and deviations of ImageNet, as torchvision's networks expect.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def picture(seed: int, name: str) -> np.ndarray:
    level = dict(zip(CLASSES, (200, 40, 120), strict=True))[name]
    pixels = level + np.random.default_rng(seed).integers(-20, 20, SIZE)
    pixels[:, :: 4 if name == "striped" else 24] = 0
    return pixels.astype(np.uint8)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Three classes in folders `train`, `val` and `test`."""
    folder = tmp_path_factory.mktemp("divided")
    seed = 0
    for split, count in {"train": 4, "val": 2, "test": 1}.items():
        for name in CLASSES:
            for number in range(count):
                seed += 1
                write_png(folder / split / name / f"{number}.png", picture(seed, name))
    return folder


@pytest.fixture(scope="module")
def undivided(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Three classes of six images in their folders."""
    folder = tmp_path_factory.mktemp("undivided")
    for at, name in enumerate(CLASSES):
        for number in range(6):
            write_png(folder / name / f"{number}.png", picture(100 * at + number, name))
    return folder


def images(dataset: Any, **arguments: Any) -> Patches:
    arguments = {"batch_size": 4, "budget": "64MiB", "seed": 1, "threads": 2} | arguments
    return Patches(dataset, arguments.pop("patch_size", SIZE), **arguments)


def bits(batches: Any) -> list[tuple[bytes, bytes, list[str]]]:
    return [(batch["image"].numpy().tobytes(), batch["label"].numpy().tobytes(), batch["case"]) for batch in batches]


def class_of(case: str) -> int:
    return CLASSES.index(pathlib.PurePath(case).parent.name)


def test_batches_have_images_and_the_numbers_of_their_classes(divided: pathlib.Path) -> None:
    stream = images(divided)
    assert stream.classes == CLASSES and stream.labels == {"bright": 0, "dark": 1, "striped": 2}
    assert len(stream.cases) == 12 and stream.channels == ["red", "green", "blue"] and stream.spacing == ()
    assert all(case.startswith("train") for case in stream.cases)
    for loader in (stream, DataLoader(stream, batch_size=None, num_workers=0)):
        seen: list[str] = []
        for batch in loader:
            assert batch["image"].shape == (4, 3, *SIZE) and batch["image"].dtype == torch.float32
            assert batch["label"].shape == (4,) and batch["label"].dtype == torch.int64
            assert batch["label"].tolist() == [class_of(case) for case in batch["case"]]
            seen += batch["case"]
        assert len(stream) == 3 and sorted(seen) == sorted(stream.cases), "an epoch has each image once"
    loss = torch.nn.functional.cross_entropy(torch.zeros(4, 3), batch["label"])
    assert torch.isclose(loss, torch.tensor(3.0).log())


@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_without_augmentation_is_normalised_as_torchvision_does(divided: pathlib.Path, channels: int) -> None:
    stream = images(divided, augmentation=False, images={"channels": channels})
    seen = 0
    for batch in stream:
        for found, case in zip(batch["image"].numpy(), batch["case"], strict=True):
            path = pathlib.PurePath(case)
            number = {"bright": 0, "dark": 4, "striped": 8}[path.parent.name] + int(path.stem) + 1
            pixels = picture(number, path.parent.name) / 255
            mean, deviation = (MEAN, DEVIATION) if channels == 3 else ((np.mean(MEAN),), (np.mean(DEVIATION),))
            expected = np.stack([(pixels - m) / d for m, d in zip(mean, deviation, strict=True)])
            np.testing.assert_allclose(found, expected, atol=1e-5)
            seen += 1
    assert seen == 12


@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_seed_gives_the_same_bits(divided: pathlib.Path, threads: int) -> None:
    expected = bits(images(divided, threads=1))
    assert bits(images(divided, threads=threads, budget="24MiB", prefetch=2)) == expected
    assert bits(images(divided, threads=threads, seed=2)) != expected
    without = bits(images(divided, threads=threads, augmentation=False))
    assert without != expected and [batch[2] for batch in without] == [batch[2] for batch in expected]


def test_it_resumes_with_the_same_bits(divided: pathlib.Path) -> None:
    whole = images(divided)
    expected = bits(whole) + bits(whole)
    first = images(divided, threads=1)
    found = bits(first)
    for batch in first:
        found += bits([batch])
        if len(found) == 4:
            break
    state = json.loads(json.dumps(first.state_dict()))
    second = images(divided, threads=3)
    second.load_state_dict(state)
    found += bits(second)
    assert found == expected
    with pytest.raises(ValueError, match="state_dict was saved with seed=1, but these patches have seed=2"):
        images(divided, seed=2).load_state_dict(state)
    with pytest.raises(ValueError, match="state_dict was saved with images="):
        images(divided, images={"clahe": 2.0}).load_state_dict(state)
    with pytest.raises(ValueError, match="state_dict was saved with augmentation="):
        images(divided, augmentation={"degrees": 5}).load_state_dict(state)


def test_a_state_of_other_images_or_labels_is_refused(undivided: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for number in range(2):
        for name in CLASSES:
            write_png(tmp_path / name / f"{number}.png", picture(number, name))
    state = images(tmp_path).state_dict()
    images(tmp_path).load_state_dict(state)
    write_png(tmp_path / "dark" / "0.png", picture(77, "dark"))
    with pytest.raises(ValueError, match="other data"):
        images(tmp_path).load_state_dict(state)
    with pytest.raises(ValueError, match="other data"):
        images(undivided).load_state_dict(state)


def test_validation_has_each_image_as_it_is(divided: pathlib.Path) -> None:
    stream = images(divided, section="validation")
    assert len(stream.cases) == 6 and all(case.startswith("val") for case in stream.cases) and len(stream) == 2
    first = bits(stream)
    assert bits(stream) == first == bits(images(divided, section="validation", augmentation=False, seed=9))
    cases = [case for batch in first for case in batch[2]]
    # The last batch is filled up with the first images.
    assert cases[:6] == stream.cases and cases[6:] == stream.cases[:2]


def test_folds_of_undivided_images_have_all_classes(undivided: pathlib.Path) -> None:
    everything = images(undivided)
    assert len(everything.cases) == 18 == len(images(undivided, section="validation").cases)
    validated: list[str] = []
    for fold in range(5):
        training, validation = images(undivided, fold=fold), images(undivided, fold=fold, section="validation")
        assert sorted(training.cases + validation.cases) == sorted(everything.cases)
        assert {class_of(case) for case in training.cases} == {0, 1, 2}
        validated += validation.cases
    assert sorted(validated) == sorted(everything.cases)
    with pytest.raises(plimsoll.Error, match="9"):
        images(undivided, fold=9)


def test_some_classes_are_chosen_and_balanced(divided: pathlib.Path) -> None:
    stream = images(divided, images={"classes": ["striped", "bright"], "sampling": "balanced"}, iterations_per_epoch=40)
    assert stream.classes == ["striped", "bright"] and len(stream.cases) == 8
    labels = torch.cat([batch["label"].clone() for batch in stream])
    assert set(labels.tolist()) == {0, 1} and 40 < labels.sum() < 120
    for batch in stream:
        assert batch["label"].tolist() == [["striped", "bright"].index(CLASSES[class_of(c)]) for c in batch["case"]]


def test_mixed_images_have_the_share_of_each_class(divided: pathlib.Path) -> None:
    stream = images(divided, augmentation={"mixup": 0.5}, iterations_per_epoch=10)
    mixed = 0
    for batch in stream:
        label = batch["label"]
        assert label.shape == (4, 3) and label.dtype == torch.float32
        torch.testing.assert_close(label.sum(1), torch.ones(4))
        assert (label >= 0).all()
        mixed += int(((label > 0.01) & (label < 0.99)).any(1).sum())
        assert all(shares[class_of(case)] > 0 for shares, case in zip(label, batch["case"], strict=True))
    assert mixed > 0
    validation = next(iter(images(divided, augmentation={"mixup": 0.5}, section="validation")))
    assert validation["label"].max(1).values.tolist() == [1.0] * 4


def test_a_table_may_give_several_labels(tmp_path: pathlib.Path) -> None:
    findings = ["edema", "edema|mass", "", "mass", "nodule", "mass|nodule", "edema|nodule", "edema|mass|nodule"]
    lines = ["file,findings"]
    for number, found in enumerate(findings):
        write_png(tmp_path / f"{number}.png", picture(number, CLASSES[number % 3]))
        lines.append(f"{number}.png,{found}")
    (tmp_path / "chests.csv").write_text("\n".join(lines) + "\n")
    table = {"image": "file", "label": {"several": {"column": "findings", "separator": "|"}}}
    stream = images(tmp_path / "chests.csv", images={"table": table})
    assert stream.classes == ["edema", "mass", "nodule"]
    for batch in stream:
        for shares, case in zip(batch["label"].tolist(), batch["case"], strict=True):
            expected = findings[int(pathlib.PurePath(case).stem)].split("|")
            assert shares == [float(name in expected) for name in stream.classes]


def test_a_budget_that_is_too_small_is_refused_with_one_that_would_do(divided: pathlib.Path) -> None:
    limit, refused = 4 << 20, 0
    while True:
        try:
            stream = images(divided, budget=limit)
            break
        except plimsoll.OverLimit as error:
            assert error.limit == limit and error.remedy is not None
            limit, refused = error.limit - error.available + error.needed, refused + 1
            assert refused < 16
    assert refused > 0 and bits(stream) == bits(images(divided)) and stream.budget.peak <= limit
    names = {holder.name for holder in stream.budget.holders()}
    assert "batches and threads" in names and "list of images" in names


def test_an_image_that_is_gone_is_named(tmp_path: pathlib.Path) -> None:
    for number in range(2):
        for name in CLASSES:
            write_png(tmp_path / name / f"{number}.png", picture(number, name))
    # Nothing is kept between steps.
    stream = images(tmp_path, cache=False)
    (tmp_path / "dark" / "1.png").write_bytes(b"torn")
    with pytest.raises(plimsoll.Error, match=r"dark/1\.png"):
        bits(stream)
    with pytest.raises(plimsoll.Error, match=r"1\.png"):
        images(tmp_path, cache=False)
    with pytest.raises(plimsoll.Error, match="skip_bad_cases"):
        images(tmp_path, cache=False, skip_bad_cases=True)


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"patch_size": (1, 20, 24)}, ValueError, "patch_size"),
        ({"patch_size": (20, 20000)}, ValueError, "patch_size"),
        ({"spacing": "native"}, ValueError, "spacing has no effect"),
        ({"oversample_foreground": 0.5}, ValueError, "oversample_foreground has no effect"),
        ({"augmentation": {"p_rotation": 0.5}}, ValueError, "augmentation.*p_rotation"),
        ({"augmentation": {"degrees": 200}}, ValueError, "augmentation.*degrees"),
        ({"channels": ["CT"], "images": {}}, ValueError, "channels describes volumes"),
        ({"labels": {"background": 0}, "images": {}}, ValueError, "labels describes volumes"),
        ({"channels": ["CT"]}, plimsoll.Error, "label maps"),
        ({"label_dtype": torch.uint8}, ValueError, "label_dtype is torch.uint8"),
        ({"augmentation": {"mixup": 0.5}, "label_dtype": torch.int64}, ValueError, "label_dtype has no effect"),
        ({"images": 3}, TypeError, "images"),
        ({"images": {"size": [20, 24]}}, ValueError, 'images has "size", which patch_size sets'),
        ({"images": {"class_weights": "balanced"}}, ValueError, "images.*class_weights"),
        ({"images": {"channels": 2}}, ValueError, "images.*channels"),
        ({"images": {"classes": ["bright", "green"]}}, ValueError, "images.*green"),
        ({"images": {"clahe": float("nan")}}, ValueError, "images.clahe"),
        ({"images": {"sharpness": 2}}, ValueError, "images.*sharpness"),
        ({"iterations_per_epoch": "all"}, ValueError, "iterations_per_epoch"),
    ],
)
def test_bad_arguments_are_named(
    divided: pathlib.Path, arguments: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        images(divided, **arguments)


def test_settings_of_images_have_no_effect_on_label_maps(tmp_path: pathlib.Path) -> None:
    for number in range(4):
        write_png(tmp_path / "images" / f"{number}.png", picture(number, "bright"))
        write_png(tmp_path / "masks" / f"{number}.png", picture(number, "bright") > 200)
    assert next(iter(images(tmp_path)))["label"].shape == (4, 1, 1, *SIZE)
    with pytest.raises(ValueError, match="images has no effect"):
        images(tmp_path, images={"channels": 1})
