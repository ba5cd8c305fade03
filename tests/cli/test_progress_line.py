"""The line that shows the progress of a long command, and what feeds it."""

from __future__ import annotations

import threading

import pytest

from allranks.cli import progress
from allranks.launch.terminal import Style
from allranks.rehearse.monitor import Monitor


def line(monkeypatch: pytest.MonkeyPatch, *, live: bool) -> progress.ProgressLine:
    monkeypatch.setattr(progress, "choose_style", lambda *_: Style(color=False, live=live))
    return progress.ProgressLine()


def test_a_terminal_gets_one_line_that_is_redrawn(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    shown = line(monkeypatch, live=True)
    shown.update("step 1 of a long run, 3 s")
    shown.update("step 2")
    shown.print("done")
    shown.print("next")
    assert capsys.readouterr().err == "\rstep 1 of a long ru\x1b[K\rstep 2\x1b[K\r\x1b[Kdone\nnext\n"


def test_a_pipe_gets_plain_lines_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = line(monkeypatch, live=False)
    for second in range(65):
        now[0] = float(second)
        shown.update(f"after {second} s")
    shown.print("done")
    assert capsys.readouterr().err == "after 30 s\nafter 60 s\ndone\n"


def test_the_monitor_shows_steps_seconds_and_findings_while_a_run_goes_on() -> None:
    lines: list[str] = []
    is_shown = threading.Event()

    def show(text: str) -> None:
        lines.append(text)
        is_shown.set()

    monitor = Monitor(show)
    monitor.begin("rehearsal 1 of 2, quiet", 1)
    with monitor.following(lambda: 7):
        assert is_shown.wait(60)
    assert lines[0].startswith("rehearsal 1 of 2, quiet            step 7, ")
    assert lines[0].endswith(" s, 1 finding so far")
    assert not any(thread.name == "allranks-monitor" for thread in threading.enumerate())
    with Monitor(None).following(lambda: 7):
        pass
