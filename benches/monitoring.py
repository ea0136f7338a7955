"""What it costs to watch a run: of a step, of an epoch, and of resident memory, with --tensorboard --log-steps --openmetrics against without.

    python benches/monitoring.py PLIMSOLL FOLDER [--rounds 7] [--step SECONDS]

Needs nothing but Python. FOLDER is made, with the data set of the demonstration. Runs of a tiny network alternate, so that both share the noise of the
machine: of one long epoch, whose steps take a few milliseconds so that what is added to them can be seen, and of many epochs of one step.
The differences of medians are printed, with those of their rounds from the lowest to the highest, and what they come to of a step of so many seconds.
`watch --once` of a run of 1,000 epochs is timed, too, from the start of the process to its end.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path

asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
asked.add_argument("plimsoll", type=Path)
asked.add_argument("folder", type=Path)
asked.add_argument("--rounds", type=int, default=7)
asked.add_argument("--step", type=float, default=1.0, help="seconds of a step that the cost is compared with")
asked = asked.parse_args()
plimsoll, folder = str(asked.plimsoll.resolve()), asked.folder.resolve()
folder.mkdir(parents=True, exist_ok=True)
data = folder / "dataset"

if not data.is_dir():
    demo = subprocess.Popen([plimsoll, "demo", "--out", str(folder / "demo"), "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (folder / "demo/run").is_dir():
        time.sleep(0.2)
    demo.kill()
    demo.wait()
    shutil.move(folder / "demo/dataset", data)
    shutil.rmtree(folder / "demo")


def trained(name, epochs, steps, watched):
    """A run: seconds of each epoch without its validation, and the most that was resident."""
    out = folder / name
    shutil.rmtree(out, ignore_errors=True)
    command = [
        plimsoll, "train", str(data), "--out", str(out), "--fold", "all", "--ram", "512MiB", "--net", "dynunet", "--features", "4,8",
        "--patch-size", "8", "--spacing", "0.003,0.003,0.003", "--epochs", str(epochs), "--iterations", str(steps), "--validation-iterations", "1",
        "--threads", "1", "--config", "/dev/null", "--json",
    ]
    if watched:
        command += ["--tensorboard", "--log-steps", "--openmetrics", str(folder / "plimsoll.prom")]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.perf_counter() - start
    events = [json.loads(line) for line in (out / "fold_all/events.jsonl").read_text().splitlines()]
    record = json.loads((out / "fold_all/run.json").read_text())
    seconds = [event["seconds"] - event["validation_seconds"] for event in events if event["event"] == "epoch"]
    # From the beginning of the run to its end, with all that is written between epochs.
    return {"epochs": seconds, "wall": wall, "resident": record["peak_rss_bytes"], "step": record["seconds_per_step"]}


def compared(what, epochs, steps, of):
    """Pairs of runs without and with: the differences of what `of` takes from them."""
    pairs = []
    for round in range(asked.rounds):
        order = [False, True] if round % 2 == 0 else [True, False]
        both = {watched: trained(f"{what}_{int(watched)}", epochs, steps, watched) for watched in order}
        pairs.append((both[False], both[True]))
    differences = sorted(of(watched) - of(plain) for plain, watched in pairs)
    return statistics.median(differences), differences, pairs


STEPS, EPOCHS = 2000, 60
trained("warm", 2, 50, False)
step, steps, pairs = compared("steps", 1, STEPS, lambda run: run["epochs"][0] / STEPS)
plain = statistics.median(run["epochs"][0] / STEPS for run, _ in pairs)
print(f"a step of {1e3 * plain:.3f} ms: {1e3 * step:+.4f} ms (rounds {1e3 * steps[0]:+.4f} … {1e3 * steps[-1]:+.4f})")
print(f"  of a step of {asked.step:g} s: {100 * step / asked.step:.4f} %")
resident = statistics.median(watched["resident"] - plain["resident"] for plain, watched in pairs)
epoch, epochs, pairs = compared("epochs", EPOCHS, 1, lambda run: run["wall"] / EPOCHS)
plain = statistics.median(run["wall"] / EPOCHS for run, _ in pairs)
print(f"an epoch of {1e3 * plain:.1f} ms: {1e3 * epoch:+.2f} ms (rounds {1e3 * epochs[0]:+.2f} … {1e3 * epochs[-1]:+.2f})")
print(f"  of an epoch of 250 steps of {asked.step:g} s: {100 * epoch / (250 * asked.step):.5f} %")
more = statistics.median(watched["resident"] - plain["resident"] for plain, watched in pairs)
print(f"resident: {resident / 2**20:+.2f} MiB with many steps, {more / 2**20:+.2f} MiB with many epochs")

# A run of 1,000 epochs with a sample of each: the lines of one epoch again and again.
long = folder / "long"
shutil.rmtree(long, ignore_errors=True)
shutil.copytree(folder / "epochs_0", long)
fold = long / "fold_all"
metrics = json.loads((fold / "metrics.jsonl").read_text().splitlines()[-1])
events = [json.loads(line) for line in (fold / "events.jsonl").read_text().splitlines()]
last = {event["event"]: event for event in events}
with open(fold / "metrics.jsonl", "w") as file:
    for number in range(1000):
        file.write(json.dumps(metrics | {"epoch": number, "steps": number + 1}) + "\n")
with open(fold / "events.jsonl", "w") as file:
    for event in ("start", "plan"):
        file.write(json.dumps(last[event]) + "\n")
    for number in range(1000):
        file.write(json.dumps(last["epoch"] | {"epoch": number}) + "\n" + json.dumps(last["sample"] | {"steps": number + 1}) + "\n")
times = []
for _ in range(4 * asked.rounds):
    start = time.perf_counter()
    subprocess.run([plimsoll, "watch", str(long), "--once"], check=True, stdout=subprocess.DEVNULL)
    times.append(time.perf_counter() - start)
print(f"watch --once of 1,000 epochs: {1e3 * statistics.median(times):.1f} ms (at most {1e3 * max(times):.1f} ms)")
