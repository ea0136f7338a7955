"""Progress of jobs in terminals and notebooks."""

from __future__ import annotations

import html
import sys
import time
from typing import Any, Protocol

from ._events import Event, Message, Progress

# The least time between two drawings of the same work, in seconds.
_EVERY = 0.1
# The width of a bar in characters.
_WIDTH = 24


class Display(Protocol):
    """A display of events."""

    def show(self, event: Event) -> None:
        """Show an event."""

    def close(self) -> None:
        """Remove what is left of bars."""


class _Silent:
    def show(self, event: Event) -> None:
        pass

    def close(self) -> None:
        pass


class _Bars:
    """A bar for the latest work, drawn by a subclass."""

    def __init__(self) -> None:
        self._drawn = 0.0

    def show(self, event: Event) -> None:
        if isinstance(event, Progress):
            if event.state == "ended":
                self.clear()
            elif event.state == "began" or time.monotonic() - self._drawn >= _EVERY or event.done == event.pieces:
                self._drawn = time.monotonic()
                self.draw(event)
        elif isinstance(event, Message) and event.kind in ("line", "part"):
            self.line(event.text)

    def close(self) -> None:
        self.clear()

    def draw(self, event: Progress) -> None:
        raise NotImplementedError

    def line(self, text: str) -> None:
        raise NotImplementedError

    def clear(self) -> None:
        raise NotImplementedError


class _Terminal(_Bars):
    """A bar in the last line of the standard error stream."""

    def draw(self, event: Progress) -> None:
        import shutil

        room = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r{_printable(_text(event))[:room]}\x1b[K")
        sys.stderr.flush()

    def line(self, text: str) -> None:
        sys.stderr.write(f"\r{_printable(text)}\x1b[K\n")
        sys.stderr.flush()

    def clear(self) -> None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


class _Notebook(_Bars):
    """A bar below the cell of a notebook."""

    def __init__(self) -> None:
        super().__init__()
        self._handle: Any = None
        self._lines: list[str] = []

    def draw(self, event: Progress) -> None:
        value = "" if event.pieces is None else f' value="{event.done}" max="{event.pieces}"'
        left = _left(event.seconds_left)
        text = html.escape(" ".join(filter(None, (_count(event), left, event.note))))
        self._update(f"{html.escape(event.title)} <progress{value}></progress> {text}")

    def line(self, text: str) -> None:
        self._lines = [*self._lines[-4:], text]
        self._update("")

    def clear(self) -> None:
        self._update("")

    def _update(self, bar: str) -> None:
        from IPython.display import HTML, display

        lines = "".join(f"<div>{html.escape(line)}</div>" for line in self._lines)
        page = HTML(f"{lines}<div>{bar}</div>")
        if self._handle is None:
            self._handle = display(page, display_id=True)
        else:
            self._handle.update(page)


def display_for(progress: bool | None) -> Display:
    """Return the display for this process. With `None`, progress is shown in terminals and notebooks alone."""
    if progress is False:
        return _Silent()
    if _is_notebook():
        return _Notebook()
    if progress or (sys.stderr is not None and sys.stderr.isatty()):
        return _Terminal()
    return _Silent()


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def _count(event: Progress) -> str:
    return "" if event.pieces is None else f"{event.done}/{event.pieces}"


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} left" if hours else f"{minutes}:{rest:02} left"


def _text(event: Progress) -> str:
    bar = ""
    if event.pieces:
        full = min(_WIDTH, _WIDTH * event.done // event.pieces)
        bar = "█" * full + "░" * (_WIDTH - full)
    return " ".join(filter(None, (event.title, bar, _count(event), _left(event.seconds_left), event.note)))


def _printable(text: str) -> str:
    """Return a text without control characters, which a terminal would obey."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)
