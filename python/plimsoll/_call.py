"""Calls of jobs of the library: arguments as JSON, events to callbacks, results as JSON."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _plimsoll
from ._events import Callback, Callbacks, Message, event_of
from ._memory import Budget
from ._progress import display_for

PathLike = str | os.PathLike[str]
Memory = str | int | Budget | None

_PACKAGE = str(Path(__file__).parent)


def call(name: str, arguments: Mapping[str, Any], *, callbacks: Callbacks = None, progress: bool | None = False) -> Any:
    """Run a job of the library and return its result.

    Warnings become warnings of Python, notes go to the logger ``plimsoll``.
    """
    handlers = _handlers(callbacks)
    if progress is not None:
        as_flag(progress, "progress")
    text = json.dumps(plain(arguments, ""), allow_nan=False)
    display = display_for(progress)

    def observe(written: str) -> None:
        event = event_of(json.loads(written))
        display.show(event)
        if isinstance(event, Message) and event.kind == "warning":
            warnings.warn(event.text, UserWarning, stacklevel=_depth())
        elif isinstance(event, Message) and event.kind == "note":
            _note(event.text)
        for handler in handlers:
            handler(event)

    try:
        return json.loads(_plimsoll.run_job(name, text, observe))
    finally:
        display.close()


def plain(value: object, name: str) -> Any:
    """Return a value as JSON has it. Infinity becomes ``"inf"``, as in files of settings."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            raise ValueError(f"{name} is NaN")
        return ("inf" if number > 0 else "-inf") if math.isinf(number) else number
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner, f"{name}.{key}".lstrip(".")) for key, inner in value.items()}
    if isinstance(value, (Sequence, set, frozenset, np.ndarray)) and not isinstance(value, (bytes, bytearray)):
        return [plain(inner, name) for inner in value]
    raise TypeError(f"{name} must not be of type {type(value).__name__}")


def as_path(value: object, name: str) -> str:
    """Return a path as a text."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, not {type(value).__name__}")
    path = os.fspath(value)
    if not isinstance(path, str):
        raise TypeError(f"{name} must be a path of text, not of bytes")
    return path


def paths_of(value: object, name: str) -> list[str]:
    """Return one path or several as texts."""
    if isinstance(value, (str, os.PathLike)):
        return [as_path(value, name)]
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a path or a sequence of paths, not {type(value).__name__}")
    return [as_path(path, name) for path in value]


def as_flag(value: object, name: str) -> bool:
    """Return a choice between two."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}")
    return bool(value)


def optional_path(value: object, name: str) -> str | None:
    """Return a path as a text, or `None`."""
    return None if value is None else as_path(value, name)


def as_bytes(value: Memory, name: str) -> int | None:
    """Return a limit of memory in bytes; what a budget has left; or `None`."""
    if value is None:
        return None
    if isinstance(value, Budget):
        return value.available
    if isinstance(value, bool) or not isinstance(value, (str, int, np.integer)):
        raise TypeError(f"{name} must be a number of bytes or a text such as '2GiB', not {type(value).__name__}")
    if isinstance(value, str):
        try:
            return _plimsoll.parse_bytes(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if value < 0:
        raise ValueError(f"{name} is {value} bytes; it must not be negative")
    return int(value)


def names_of(value: object, name: str) -> list[str]:
    """Return one name or several as a list of texts. Names may be joined by commas."""
    if value is None:
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, (int, np.integer)):
        return [str(int(value))]
    if isinstance(value, (Sequence, set, frozenset, np.ndarray, range)):
        return [str(part) for part in value]
    raise TypeError(f"{name} must be a name or a sequence of names, not {type(value).__name__}")


def _handlers(callbacks: Callbacks) -> list[Callback]:
    if not (callbacks is None or callable(callbacks) or isinstance(callbacks, Iterable)):
        raise TypeError(f"callbacks must be a function or a sequence of functions, not {type(callbacks).__name__}")
    handlers = [callbacks] if callable(callbacks) else list(callbacks or [])
    for handler in handlers:
        if not callable(handler):
            raise TypeError(f"callbacks has a {type(handler).__name__}, which cannot be called")
    return handlers


def _note(text: str) -> None:
    # Loading it takes a tenth of the time that the import of the package may take.
    import logging

    logging.getLogger("plimsoll").info("%s", text)


def _depth() -> int:
    """Return the number of frames from `observe` to the first outside of the package."""
    depth = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        depth += 1
    return depth
