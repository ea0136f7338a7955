from __future__ import annotations

import io
import sys
import types
from typing import Any

import pytest

import plimsoll
from plimsoll import _progress


def progress(state: Any, done: int, pieces: int | None = 10, note: str = "") -> plimsoll.Progress:
    return plimsoll.Progress(1, "reading", state, done, pieces, note, 65.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_and_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    display = _progress.display_for(None)
    display.show(progress("began", 0))
    display.show(progress("advanced", 10, note="a\x1b[31mcase"))
    display.show(plimsoll.Message("line", "half of it"))
    display.show(progress("ended", 0))
    display.close()
    shown = terminal.getvalue()
    assert "reading ████████████████████████ 10/10 1:05 left a�[31mcase\x1b[K" in shown
    assert "\rhalf of it\x1b[K\n" in shown
    assert shown.endswith("\r\x1b[K")


def test_progress_is_silent_outside_of_terminals_unless_it_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    for requested, is_shown in ((None, False), (False, False), (True, True)):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        display = _progress.display_for(requested)
        display.show(progress("began", 0, None))
        assert bool(stream.getvalue()) == is_shown


def test_a_notebook_updates_one_output(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []

    class Handle:
        def update(self, page: str) -> None:
            pages.append(page)

    def display(page: str, display_id: bool) -> Handle:
        assert display_id
        pages.append(page)
        return Handle()

    shell = type("ZMQInteractiveShell", (), {})()
    module: Any = types.ModuleType("IPython")
    module.get_ipython = lambda: shell
    inner: Any = types.ModuleType("IPython.display")
    inner.display, inner.HTML = display, str
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    bars = _progress.display_for(None)
    bars.show(progress("advanced", 10, note="<case>"))
    bars.close()
    assert 'value="10" max="10"' in pages[0] and "&lt;case&gt;" in pages[0]
    assert len(pages) == 2 and "progress" not in pages[1]
