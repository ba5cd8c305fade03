"""When the guard starts: at once, or at the end of an ``init`` that this very thread runs."""

from __future__ import annotations

import threading

import pytest

from allranks.hang import start


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_made", None)
    monkeypatch.setattr(start, "_stop_substitute", None)


def test_a_watch_that_starts_in_another_thread_is_no_init(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard of a rank that took it for one never started, and the other ranks waited for it for ever."""
    begun, may_end = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, *_: object) -> None: ...

        def start(self) -> None:
            begun.set()
            may_end.wait()

    monkeypatch.setattr(start, "Watch", Slow)
    thread = threading.Thread(target=start.substitute, args=(None, None, lambda: None))
    thread.start()
    assert begun.wait(60)
    try:
        assert not start.is_initialising()
    finally:
        may_end.set()
        thread.join()


def test_the_thread_that_runs_init_is_initialising(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def init(*_: object, **__: object) -> None:
        seen.append(start.is_initialising())

    monkeypatch.setattr(start.detect, "init", init)
    monkeypatch.setattr(start, "_start_watch", lambda *_: None)
    start.init()
    assert seen == [True]
    assert not start.is_initialising()
