from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plimsoll


def test_a_data_set_is_inspected(dataset: Path) -> None:
    found = plimsoll.inspect(dataset)
    assert (found.kind, found.cases, found.labels) == ("volumes", 8, {"background": 0, "vessel": 1})
    assert found.fingerprint is not None
    assert len(found.fingerprint["cases"]) == 8
    found.check()


def test_the_problem_of_a_case_is_part_of_the_inspection(dataset: Path, tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(dataset, broken)
    image = sorted((broken / "imagesTr").iterdir())[0]
    image.write_bytes(image.read_bytes()[:500])
    found = plimsoll.inspect(broken)
    assert any(problem["severity"] == "error" for problem in found.problems)
    with pytest.raises(plimsoll.Error, match=image.name.split("_0000")[0]) as raised:
        found.check()
    assert raised.value.remedy


def test_a_missing_data_set_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(plimsoll.Error, match="nowhere") as raised:
        plimsoll.plan(tmp_path / "nowhere")
    assert raised.value.remedy


def test_the_parts_of_a_plan_add_up_and_its_least_limit_suffices(dataset: Path, small: dict[str, Any]) -> None:
    plan = plimsoll.plan(dataset, ram="2GiB", threads=2, pareto=True, **small)
    assert sum(plan.parts.values()) == plan.total <= plan.ram == 2 << 30
    assert plan.feasible and plan.patch_size == (16, 16, 16)
    assert plan.curve is not None
    assert [point.ram for point in plan.curve] == sorted((point.ram for point in plan.curve), reverse=True)
    page = plan._repr_html_()
    assert "data:image/svg+xml" in page and plan.arena_svg.startswith("<svg") and "arena" in page
    least = plimsoll.plan(dataset, ram=plan.minimum_ram, threads=2, patches=False, **small)
    assert least.feasible
    too_little = plimsoll.plan(dataset, ram=plan.minimum_ram - (1 << 20), threads=2, patches=False, **small)
    assert not too_little.feasible and too_little.minimum_ram == plan.minimum_ram
    with pytest.raises(plimsoll.OverLimit) as raised:
        too_little.check()
    assert (raised.value.needed, raised.value.limit) == (plan.minimum_ram, too_little.ram)


def test_a_plan_equals_that_of_the_command_line_but_for_the_code_of_the_process(
    dataset: Path, small: dict[str, Any]
) -> None:
    path = plimsoll.find_plimsoll_bin()
    options = "--ram 2GiB --threads 2 --net dynunet --features 8,16,24 --patch-size 16,16,16 --epochs 2 --iterations 4"
    command = [path, "--json", "plan", str(dataset), *options.split(), "--validation-iterations", "2"]
    shown = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    plan = plimsoll.plan(dataset, ram="2GiB", threads=2, **small)
    for key in (
        "arena_bytes",
        "arena_lower_bound_bytes",
        "loader_bytes",
        "index_bytes",
        "parameters",
        "steps",
        "flops_per_step",
    ):
        assert plan.numbers[key] == shown[key], key


def test_a_wrong_argument_is_named(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ptch_size is neither an argument nor a setting"):
        plimsoll.plan(dataset, ptch_size=3)
    with pytest.raises(ValueError, match="patch_size is invalid"):
        plimsoll.plan(dataset, patch_size="big")
    with pytest.raises(ValueError, match="learning_rate is NaN"):
        plimsoll.plan(dataset, learning_rate=float("nan"))
    with pytest.raises(ValueError, match="ram"):
        plimsoll.plan(dataset, ram="much")
    with pytest.raises(TypeError, match="ram must be"):
        plimsoll.plan(dataset, ram=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="device"):
        plimsoll.plan(dataset, device="abacus")
    with pytest.raises(ValueError, match="allow"):
        plimsoll.plan(dataset, allow=["anything"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="dataset must be a path"):
        plimsoll.plan(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callbacks"):
        plimsoll.plan(dataset, callbacks=[3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="threads"):
        plimsoll.train(dataset, out=tmp_path / "run", threads=0)
    with pytest.raises(ValueError, match="new_head has no effect without start"):
        plimsoll.train(dataset, out=tmp_path / "run", new_head=True)
    with pytest.raises(ValueError, match='adopt has "network", but must be of "patch"'):
        plimsoll.plan(dataset, start=dataset, adopt=["network"])  # type: ignore[list-item]
    with pytest.raises(plimsoll.Error, match="cannot be started from"):
        plimsoll.plan(dataset, start=dataset)
    assert not (tmp_path / "run").exists()


def test_a_run_that_does_not_fit_raises_and_its_remedy_works(
    dataset: Path, small: dict[str, Any], tmp_path: Path
) -> None:
    least = plimsoll.plan(dataset, threads=2, patches=False, **small).minimum_ram
    with pytest.raises(plimsoll.OverLimit) as raised:
        plimsoll.train(dataset, out=tmp_path / "run", ram=least - (1 << 20), threads=2, **small)
    assert isinstance(raised.value, MemoryError)
    assert raised.value.needed == least
    assert "--" not in str(raised.value)


def test_metrics_of_a_run_are_arrays(run: plimsoll.Run) -> None:
    metrics = run.metrics
    assert metrics["epoch"].tolist() == [0, 1] and metrics["steps"].tolist() == [4, 8]
    assert metrics["train_loss"].dtype == np.float64 and np.isfinite(metrics["train_loss"]).all()
    assert metrics["pseudo_dice"].shape == (2, 1)
    assert (metrics["seconds"] > 0).all()
    (status,) = run.status
    assert (status.state, status.why, status.epochs_done, status.epochs) == ("ended", "finished", 2, 2)
    fold = run.folds["0"]
    assert fold.record is not None and fold.record["steps"] == 8
    assert fold.validation is not None and len(fold.validation.cases) == 2
    assert run.result is not None and run.result["folds"][0]["fold"] == "0"
    assert run.scores is None
    assert len(run._repr_html_()) > 0 and "finished after 2 of 2 epochs" in repr(run)


def test_a_run_is_reported_and_exported(run: plimsoll.Run, tmp_path: Path) -> None:
    page = run.report(tmp_path / "page.html", cases=1)
    assert Path(page).read_text().startswith("<!DOCTYPE html>")
    output = tmp_path / "weights.safetensors"
    written = plimsoll.export(run.path, output)
    assert written["tensors"] > 0 and output.is_file()
    with pytest.raises(plimsoll.Error, match="weights.safetensors"):
        plimsoll.export(run.path, output)


def test_events_reach_callbacks_on_the_thread_that_called(dataset: Path, small: dict[str, Any], tmp_path: Path) -> None:
    events: list[plimsoll.Event] = []
    threads: set[int] = set()

    def see(event: plimsoll.Event) -> None:
        events.append(event)
        threads.add(threading.get_ident())

    plimsoll.train(dataset, out=tmp_path / "run", threads=2, skip_validation=True, callbacks=see, **small)
    assert threads == {threading.get_ident()}
    assert [event.epoch for event in events if isinstance(event, plimsoll.EpochEnd)] == [0, 1]
    (planned,) = [event for event in events if isinstance(event, plimsoll.Planned)]
    assert planned.numbers["patch_size"] == [16, 16, 16]
    assert any(isinstance(event, plimsoll.Progress) and event.pieces for event in events)


def test_an_exception_of_a_callback_stops_the_run_which_resumes_to_the_same_bits(
    dataset: Path, small: dict[str, Any], run: plimsoll.Run, tmp_path: Path
) -> None:
    class Enough(Exception):
        pass

    def stop(event: plimsoll.Event) -> None:
        if isinstance(event, plimsoll.EpochEnd):
            raise Enough

    out = tmp_path / "run"
    with pytest.raises(Enough):
        plimsoll.train(dataset, out=out, threads=2, callbacks=[stop], **small)
    stopped = plimsoll.Run(out)
    assert stopped.status[0].why == "signal"
    with pytest.raises(plimsoll.Error, match="resume=True"):
        plimsoll.train(dataset, out=out, threads=2, **small)
    resumed = plimsoll.train(dataset, out=out, threads=2, resume=True, **small)
    for name in ("train_loss", "validation_loss", "pseudo_dice", "ema_pseudo_dice"):
        np.testing.assert_array_equal(resumed.metrics[name], run.metrics[name])
    weights = [tmp_path / f"{name}.safetensors" for name in ("resumed", "undisturbed")]
    for path, model in zip(weights, (resumed.path, run.path), strict=True):
        plimsoll.export(model, path)
    assert weights[0].read_bytes() == weights[1].read_bytes()


# Shells start background processes with interrupts ignored, which children inherit.
SCRIPT = """
import signal, sys, plimsoll
signal.signal(signal.SIGINT, signal.default_int_handler)
def ready(event):
    if isinstance(event, plimsoll.EpochEnd):
        print("epoch", event.epoch, flush=True)
settings = dict(epochs=1000, iterations_per_epoch=4, validation_iterations=1, patch_size=(16, 16, 16))
settings |= dict(net="dynunet", features=[8, 16, 24])
try:
    plimsoll.train(sys.argv[1], out=sys.argv[2], threads=2, callbacks=ready, progress=False, **settings)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for other processes")
def test_ctrl_c_stops_between_steps_with_a_checkpoint(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-c", SCRIPT, str(dataset), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "epoch 0\n"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 0 and rest.endswith("interrupted\n")
    (fold,) = plimsoll.Run(out).folds.values()
    assert (fold.status.state, fold.status.why) == ("ended", "signal")
    assert fold.record is not None and fold.record["steps"] >= 4
    assert any("checkpoint" in path.name for path in Path(fold.folder).iterdir())


def test_folders_are_evaluated_without_writing_into_them(run: plimsoll.Run, dataset: Path, tmp_path: Path) -> None:
    predictions = Path(run.folds["0"].folder) / "validation"
    before = {path.name: path.stat().st_mtime_ns for path in predictions.iterdir()}
    scores = plimsoll.evaluate(predictions, dataset, metrics=["overlap", "surface"], partial=True)
    assert {path.name: path.stat().st_mtime_ns for path in predictions.iterdir()} == before
    assert len(scores.cases) == 2 and set(scores.mean) == {1} and scores.names == {1: "vessel"}
    validated = run.folds["0"].validation
    assert validated is not None
    assert scores.mean[1]["Dice"] == validated.mean[1]["Dice"]
    written = plimsoll.evaluate(predictions, dataset, partial=True, output=tmp_path / "scores.json")
    assert plimsoll.Evaluation.read(tmp_path / "scores.json").foreground_mean == written.foreground_mean
    table = scores.to_dataframe() if _has("pandas") else None
    assert table is None or list(table.columns)[:1] == ["name"]


def test_parts_of_an_evaluation_merge_to_the_scores_of_all(run: plimsoll.Run, dataset: Path, tmp_path: Path) -> None:
    predictions = Path(run.folds["0"].folder) / "validation"
    plimsoll.evaluate(predictions, dataset, partial=True, output=tmp_path / "whole.json")
    first, second = (
        plimsoll.evaluate(predictions, dataset, partial=True, part=part, output=tmp_path / "parts.json")
        for part in ("1/2", "2/2")
    )
    assert (len(first.cases), len(second.cases)) == (1, 2)
    assert (tmp_path / "parts.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    with pytest.raises(ValueError, match="part needs output"):
        plimsoll.evaluate(predictions, dataset, partial=True, part="1/2")


def test_two_files_are_evaluated(dataset: Path) -> None:
    label = sorted((dataset / "labelsTr").iterdir())[0]
    scores = plimsoll.evaluate(label, label, labels=[1])
    assert scores.foreground_mean["Dice"] == 1.0
    with pytest.raises(ValueError, match="spacing"):
        plimsoll.evaluate(label, label, spacing=1.0)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="both"):
        plimsoll.evaluate(label, np.zeros((2, 2), int))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="output"):
        plimsoll.evaluate(np.zeros((2, 2), int), np.zeros((2, 2), int), output="x.json")  # type: ignore[call-overload]


def test_an_output_never_replaces_an_input(run: plimsoll.Run, dataset: Path) -> None:
    label = sorted((dataset / "labelsTr").iterdir())[0]
    before = label.read_bytes()
    with pytest.raises(plimsoll.Error, match="output"):
        plimsoll.evaluate(label, label, labels=[1], output=label)
    assert label.read_bytes() == before


def test_files_that_a_run_was_trained_on_are_not_replaced(run: plimsoll.Run, dataset: Path, tmp_path: Path) -> None:
    label = sorted((dataset / "labelsTr").iterdir())[0]
    image = sorted((dataset / "imagesTs").iterdir())[0]
    before = {path: path.read_bytes() for path in dataset.rglob("*") if path.is_file()}
    fold = Path(run.path) / "fold_0"
    link = tmp_path / "label.safetensors"
    link.hardlink_to(label)
    labels = tmp_path / "label.nii.gz"
    labels.hardlink_to(label)
    with pytest.raises(plimsoll.Error, match="the data set"):
        plimsoll.export(run.path, link, overwrite=True)
    with pytest.raises(plimsoll.Error, match="would put its files among them"):
        plimsoll.compare(run.path, fold, ensembles=dataset / "labelsTr", data=dataset)
    model = plimsoll.Model(run.path, threads=2)
    for output in (labels, label):
        with pytest.raises(plimsoll.Error, match="the data set"):
            model.predict(image, output=output, overwrite=True)
    with pytest.raises(plimsoll.Error, match="fold_0"):
        model.predict(image, output=fold / "specification.json", overwrite=True)
    for folder in ("labelsTr", "imagesTr", "labelsTr/new"):
        with pytest.raises(plimsoll.Error, match="would put its files among them"):
            model.predict_folder(dataset / "imagesTs", dataset / folder, overwrite=True)
    with pytest.raises(plimsoll.Error, match="would put its files among them"):
        plimsoll.segment("total", dataset / "imagesTs", dataset / "imagesTs", ml=True, overwrite=True)
    assert {path: path.read_bytes() for path in dataset.rglob("*") if path.is_file()} == before
    assert link.read_bytes() == labels.read_bytes() == label.read_bytes()


def test_a_page_about_an_inspection_replaces_its_own_kind_alone(
    run: plimsoll.Run, dataset: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    for _ in range(2):
        plimsoll.inspect(dataset, page=page)
    about_run = tmp_path / "run.html"
    run.report(about_run)
    before = about_run.read_bytes()
    with pytest.raises(plimsoll.Error, match="is not a page about an inspection"):
        plimsoll.inspect(dataset, page=about_run)
    assert about_run.read_bytes() == before


def test_a_sweep_trains_its_arms_which_are_compared(dataset: Path, small: dict[str, Any], tmp_path: Path) -> None:
    network = {"net": small.pop("net"), "features": small.pop("features")}
    request = {
        "settings": {**small, "network": network},
        "grid": {"learning_rate": [0.01, 0.001]},
        "folds": [0],
    }
    planned = plimsoll.sweep(request, dataset, out=tmp_path / "sweep", plan=True, threads=2)
    assert planned.trials is None and len(planned.plan["arms"]) == 2 and not (tmp_path / "sweep").exists()
    swept = plimsoll.sweep(request, dataset, out=tmp_path / "sweep", threads=2)
    assert swept.trials is not None and not swept.failed
    assert [trial["state"] for trial in swept.trials] == ["finished", "finished"]
    comparison = plimsoll.compare(swept.folder, resamples=100)
    assert len(comparison.candidates) == 2 and len(comparison.cases) == 2
    assert comparison.scores[0]["metric"] == "Dice"
    folds = plimsoll.Run(tmp_path / "sweep").folds
    assert len(folds) == 2 and all(name.endswith("seed_0/fold_0") for name in folds)
    with pytest.raises(ValueError, match="resamples"):
        plimsoll.compare(swept.folder, resamples=0)


def test_eight_threads_run_jobs_at_the_same_time(dataset: Path) -> None:
    labels = sorted((dataset / "labelsTr").iterdir())
    found: dict[int, float] = {}

    def evaluate(number: int) -> None:
        found[number] = plimsoll.evaluate(labels[number], labels[number], labels=[1], threads=1).mean[1]["n_ref"]

    threads = [threading.Thread(target=evaluate, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = [plimsoll.evaluate(label, label, labels=[1]).mean[1]["n_ref"] for label in labels]
    assert [found[number] for number in range(8)] == alone


def test_eight_threads_get_the_same_plan_although_the_machine_was_never_measured(
    dataset: Path, small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    least = plimsoll.plan(dataset, ram="2GiB", threads=1, patches=False, **small).minimum_ram
    # Without room for everything, rates decide what is recomputed.
    for attempt, ram in enumerate([2 << 30, least + (1 << 20)]):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache {attempt}"))
        found: dict[int, dict[str, Any]] = {}

        def plan(number: int, ram: int = ram, found: dict[int, dict[str, Any]] = found) -> None:
            made = plimsoll.plan(dataset, ram=ram, threads=1, patches=False, **small)
            found[number] = {**made.numbers, "drawing": made.arena_svg}

        threads = [threading.Thread(target=plan, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        for number in range(1, 8):
            differences = [key for key in found[0] if found[0][key] != found[number][key]]
            assert differences == []


def test_a_process_plans_the_same_run_in_the_same_way_after_rates_were_doubted(
    dataset: Path, small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = plimsoll.plan(dataset, ram="2GiB", threads=1, patches=False, **small)
    (file,) = (tmp_path / "plimsoll").glob("costs-*.json")
    stored = json.loads(file.read_text())
    stored["doubtful"] = {"machine": True, "kernels": sorted(stored["rates"]["kernels"])}
    file.write_text(json.dumps(stored))
    second = plimsoll.plan(dataset, ram="2GiB", threads=1, patches=False, **small)
    assert second.numbers == first.numbers and second.arena_svg == first.arena_svg
    assert json.loads(file.read_text())["doubtful"] == stored["doubtful"]


def _has(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True
