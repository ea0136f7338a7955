"""Events of jobs, which callbacks receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple


class Message(NamedTuple):
    """A line of text about a job.

    Attributes
    ----------
    kind : {"warning", "note", "part", "line"}
        A warning that a user should check, a choice or a fact, the title of the next part of the job, or a line about
        the work in progress.
    text : str
        The line.
    """

    kind: Literal["warning", "note", "part", "line"]
    text: str


class Progress(NamedTuple):
    """The progress of a piece of work of a job.

    Attributes
    ----------
    work : int
        A number that no other work of this process has.
    title : str
        A short description.
    state : {"began", "advanced", "ended"}
        The change.
    done : int
        The number of finished pieces.
    pieces : int or None
        The number of pieces; `None` if it is not known.
    note : str
        The present piece, or numbers of the last one.
    seconds_left : float or None
        An estimate; `None` if there is none.
    """

    work: int
    title: str
    state: Literal["began", "advanced", "ended"]
    done: int
    pieces: int | None
    note: str
    seconds_left: float | None


class EpochEnd(NamedTuple):
    """An epoch of a fold that is done and recorded.

    Attributes
    ----------
    fold : str
        The name of the fold.
    epoch : int
        The number of the epoch, from 0.
    numbers : dict
        The record of the epoch, as in ``metrics.jsonl``: ``train_loss``, ``validation_loss``, ``mean_pseudo_dice`` and
        others.
    cost : dict
        The time and the memory of the epoch: ``seconds``, ``peak_resident_bytes`` and others.
    """

    fold: str
    epoch: int
    numbers: Mapping[str, Any]
    cost: Mapping[str, Any]


class Planned(NamedTuple):
    """A run that is planned and about to begin.

    Attributes
    ----------
    numbers : dict
        The numbers of the plan, as in `RunPlan.numbers`.
    """

    numbers: Mapping[str, Any]


Event = Message | Progress | EpochEnd | Planned
Callback = Callable[[Event], object]
Callbacks = Callback | Sequence[Callback] | None


def event_of(data: Mapping[str, Any]) -> Event:
    """Return the event that the extension module has written."""
    kind = data["event"]
    if kind in ("warning", "note", "line"):
        return Message(kind, data["text"])
    if kind == "part":
        return Message("part", data["title"])
    if kind == "epoch":
        return EpochEnd(data["fold"], data["record"]["epoch"], data["record"], data["cost"])
    if kind == "planned":
        return Planned(data["plan"])
    return Progress(data["work"], data["title"], kind, data["done"], data["pieces"], data["note"], data["seconds_left"])
