"""Children that kill themselves right before their n-th system call on a run's files, for each n, and what they leave.

``dies_anywhere.py FOLDER STORY...`` prints for each story how many children died; fails at the first that leaves what
is neither the old nor the new. Every child is forked, so that it starts in a moment.
"""

from __future__ import annotations

import builtins
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forks import end_of, fork
from proving import damaged, newest
from test_crashes import STORIES, Story, judge, live, tell

from allranks.storage import LocalStorage

CALLS = ("open", "pwrite", "fsync", "fdatasync", "close", "link", "rename", "replace", "unlink", "mkdir", "rmdir")
MOST = 2000

# What a process has written outlives it: only a power cut would need the disk to be waited for.
os.fsync = os.fdatasync = lambda _: None


def arm(fatal: int) -> None:
    """From now on, count this process' system calls in all threads, and die before number ``fatal``."""
    count, lock = [0], threading.Lock()

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **kwargs: Any) -> Any:
            with lock:
                count[0] += 1
                if count[0] == fatal:
                    os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counting

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    builtins.open = counted(builtins.open)


def sweep(story: Story, folder: Path) -> int:
    """Let a child die before each of its system calls; return how many there were."""
    begun = folder / "begun"
    assert end_of(fork(lambda: tell(story, LocalStorage(begun)))) == 0
    for fatal in range(1, MOST):
        run = folder / str(fatal)
        if begun.exists():
            shutil.copytree(begun, run)

        def die(run: Path = run, fatal: int = fatal) -> None:
            arm(fatal)
            live(story, LocalStorage(run), block=False)

        code = end_of(fork(die))
        saved = newest(LocalStorage(run)) == (story.saves, 1)
        if code == 0:
            assert saved
            assert damaged(LocalStorage(run)) == []
            return fatal - 1
        assert code == -signal.SIGKILL, code
        judge(story, LocalStorage(run), saved=False)
        shutil.rmtree(run)
    raise AssertionError(f"it makes more than {MOST} calls")


if __name__ == "__main__":
    for name in sys.argv[2:]:
        where = Path(sys.argv[1]) / name.replace(" ", "-")
        print(f"{name}: killed before each of {sweep(STORIES[name], where)} system calls", flush=True)
