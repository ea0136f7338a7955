"""Event files of TensorBoard: what its own writer makes, and what its own reader finds in ours.

    python oracles/tensorboard.py make            writes oracles/tensorboard.tfevents
    python oracles/tensorboard.py check RUN/fold_0
                                                  reads the event files of a fold that was trained with --tensorboard, and compares them
                                                  with its metrics.jsonl, and with --log-steps also with its steps.jsonl

Needs tensorboard 2.x and numpy; Pillow to look at the pictures.
"""

import io
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent


def make():
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    events = [event_pb2.Event(wall_time=1.5, file_version="brain.Event:2")]
    for step, value in [(250, 0.75), (500, -1.25)]:
        values = [
            summary_pb2.Summary.Value(tag="loss/train", simple_value=value),
            summary_pb2.Summary.Value(tag="learning_rate", simple_value=0.5 / step),
        ]
        events.append(event_pb2.Event(wall_time=2.5, step=step, summary=summary_pb2.Summary(value=values)))
    image = summary_pb2.Summary.Image(height=2, width=4, colorspace=3, encoded_image_string=bytes(range(64)) * 4)
    values = [summary_pb2.Summary.Value(tag="progress", image=image)]
    events.append(event_pb2.Event(wall_time=3.5, step=500, summary=summary_pb2.Summary(value=values)))
    log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    events.append(event_pb2.Event(wall_time=4.5, step=501, session_log=log))
    with open(HERE / "tensorboard.tfevents", "wb") as file:
        writer = RecordWriter(file)
        for event in events:
            writer.write(event.SerializeToString())


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def check(fold):
    import numpy as np
    from PIL import Image
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(fold), size_guidance={"scalars": 0, "images": 0})
    found.Reload()
    tags = found.Tags()

    def same(tag, expected):
        scalars = found.Scalars(tag)
        steps = [scalar.step for scalar in scalars]
        assert steps == [step for step, _ in expected], (tag, steps, expected)
        for scalar, (_, value) in zip(scalars, expected):
            assert np.float32(scalar.value) == np.float32(value), (tag, scalar, value)
        print(f"{tag}: {len(steps)} steps, none twice, all values those of the journal")

    epochs = lines(fold / "metrics.jsonl")
    for tag, key in [
        ("loss/train", "train_loss"),
        ("loss/validation", "validation_loss"),
        ("learning_rate", "learning_rate"),
        ("pseudo_dice/mean", "mean_pseudo_dice"),
        ("pseudo_dice/moving_average", "ema_pseudo_dice"),
    ]:
        same(tag, [(epoch["steps"], epoch[key]) for epoch in epochs if epoch[key] is not None])
    if (fold / "steps.jsonl").exists():
        steps = lines(fold / "steps.jsonl")
        for tag, key in [("step/loss", "loss"), ("step/gradient_norm", "grad_norm")]:
            same(tag, [(step["steps"], step[key]) for step in steps])
    pictures = found.Images("progress")
    for picture in pictures:
        size = Image.open(io.BytesIO(picture.encoded_image_string)).size
        assert size == (picture.width, picture.height), (size, picture.step)
    print(f"progress: {len(pictures)} pictures at steps {[picture.step for picture in pictures]}")
    others = [tag for tag in tags["scalars"] if tag.startswith(("held_MiB/", "process/", "memory/"))]
    assert len(others) > 4, tags
    print(f"and {len(tags['scalars'])} names of scalars in all")


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"]:
        check(pathlib.Path(sys.argv[2]))
    else:
        make()
