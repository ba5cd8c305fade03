"""Saves of four real ranks (forked, over torch's store) to which something happens.

``real_saves.py FOLDER killed:RUNS:SEED``, or other stories below. Prints what it saw; fails where that is not as it
must be.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from forks import Diary, end_of, fork, kill_all, run, wait_for
from harness import torchrun_environ
from proving import blank, damaged, newest, open_run, same, state

from allranks import World, init
from allranks.checkpoint import inventory
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.errors import AllranksError, Fenced, SaveFailed
from allranks.storage import LocalStorage
from allranks.storage.base import BlockSource, Storage

RANKS = 4
SIZE = {"leaves": 8, "items": 1 << 16}  # 2 MiB
CLONE_NEWNS = 0x20000


def quiet_port() -> int:
    """Return a free port that the kernel gives to no client: hundreds of jobs must not lose theirs to one."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def join(rank: int, port: int) -> World:
    os.environ |= {**torchrun_environ(rank, RANKS, port), "OMP_NUM_THREADS": "1"}
    return init("torch", timeout=30.0, fail_fast=False)


def words_of(error: Exception) -> str:
    """Return an error's words without the rank that says them."""
    return str(error).partition(": ")[2]


def start(program: Callable[[World, Diary], None], folder: Path) -> tuple[list[int], list[Diary]]:
    """Start four ranks; return their pids and diaries. Rank 0 serves the store, so it stays until told to leave."""
    importlib.import_module("torch.distributed")  # once, for all that are forked
    port = quiet_port()
    own = Path(tempfile.mkdtemp(dir=folder))
    diaries = [Diary(own / str(rank)) for rank in range(RANKS)]

    def live(rank: int) -> None:
        program(join(rank, port), diaries[rank])
        if rank == 0:
            wait_for("the others", Diary(folder / f"{os.getpid()}-leaves").read)

    return [fork(lambda rank=rank: live(rank)) for rank in range(RANKS)], diaries


def ends_of(pids: list[int], folder: Path) -> list[int]:
    """Wait for the ranks' ends."""
    others = [end_of(pid) for pid in pids[1:]]
    Diary(folder / f"{pids[0]}-leaves").write()
    return [end_of(pids[0]), *others]


# A random rank dies at a random moment.


def saves_on(run_folder: Path) -> Callable[[World, Diary], None]:
    def program(world: World, diary: Diary) -> None:
        ckpt = Checkpointer(run_folder, world, keep_last=2, timeout=20.0, on_sigterm=False)
        found, step = ckpt.restore(blank(**SIZE)) or (state(0, **SIZE), 0)
        assert same(found, state(step, **SIZE))
        diary.write("begun", step)
        try:
            while True:
                step += 1
                ckpt.save(step, state(step, **SIZE)).wait()
                diary.write("committed", step)
        except AllranksError as error:
            unknown = isinstance(error, SaveFailed) and error.unknown
            diary.write("unknown" if unknown else type(error).__name__, step, words_of(error))

    return program


def killed(folder: Path, runs: str, seed: str) -> None:
    """Survivors agree about every step, and what they say is so; each job goes on where the one before was stopped."""
    draw, run_folder, least, seconds = random.Random(int(seed)), folder / "run", 0, []
    for _ in range(int(runs)):
        pids, diaries = start(saves_on(run_folder), folder)
        try:
            wait_for("a first save", lambda told=diaries: all(len(diary.read()) > 1 for diary in told))
            victim, moment = draw.randrange(RANKS), draw.uniform(0, 0.3)
            time.sleep(moment)
            os.kill(pids[victim], signal.SIGKILL)
            died = Diary(folder / "death")
            died.write(victim)
            codes = ends_of(pids, folder)
        except BaseException:
            kill_all(pids)
            raise
        assert codes == [-9 if rank == victim else 0 for rank in range(RANKS)], codes
        told = [diary.read() for diary in diaries]
        seconds += [one[-1][0] - died.read()[-1][0] for rank, one in enumerate(told) if rank != victim]
        least = judge(told, victim, least, run_folder)
    print(f"{runs} jobs, {least} steps; survivors knew after {median(seconds):.2f} s, {max(seconds):.2f} s at most")
    assert max(seconds) < 20


def judge(told: list[list[list[Any]]], victim: int, least: int, run_folder: Path) -> int:
    """Return the newest step that anybody said was committed."""
    assert {one[0][2] for one in told} == {told[0][0][2]}, told
    assert told[0][0][2] >= least, (told, least)
    ends: dict[int, set[str]] = {}
    for one in told:
        for _, how, step, *_ in one[1:]:
            ends.setdefault(step, set()).add(how)
    last = [one[-1][1:] for rank, one in enumerate(told) if rank != victim]
    if victim != 0:
        assert all(one == last[0] for one in last), last
    assert not any({"committed", "SaveFailed"} <= how for how in ends.values()), told
    newest_told = max((step for step, how in ends.items() if "committed" in how), default=least)

    def look() -> None:
        storage = LocalStorage(run_folder)
        there = inventory.complete_steps(storage)
        assert newest_told in there or newest_told == 0, (newest_told, there)
        assert not any(how == {"SaveFailed"} and step in there for step, how in ends.items()), (ends, there)
        assert damaged(storage) == []

    run(look)
    return newest_told


# A rank stands still, or cannot write.


class Stops(LocalStorage):
    """Stops its process while it writes step 2."""

    def write(self, path: str, source: BlockSource) -> None:
        if path.startswith("checkpoint-2/"):
            os.kill(os.getpid(), signal.SIGSTOP)
        super().write(path, source)


def three_saves(
    where: Storage, world: World, diary: Diary, before: dict[int, Callable[[], object]], **options: Any
) -> None:
    """Save steps 1 to 3, with something done ``before`` a step; tell how each ended."""
    ckpt = Checkpointer(where, world, on_sigterm=False, **options)
    for step in (1, 2, 3):
        before.get(step, lambda: None)()
        world.barrier()
        try:
            ckpt.save(step, state(step, **SIZE), block=True)
            diary.write("committed", step)
        except SaveFailed as error:
            diary.write("failed", step, words_of(error), list(error.ranks))
    ckpt.close()


def all_told(pids: list[int], diaries: list[Diary], where: Path) -> tuple[str, list[int]]:
    """Wait for the ranks' ends; return what they all told of step 2; steps 1 and 3 were saved."""
    assert ends_of(pids, where.parent) == [0] * RANKS
    told = [[line[1:] for line in diary.read()] for diary in diaries]
    assert all(one == told[0] for one in told), told
    first, second, third = told[0]
    assert (first, third) == (["committed", 1], ["committed", 3])
    assert second[0] == "failed"

    def look() -> None:
        assert inventory.complete_steps(LocalStorage(where)) == (1, 3)
        assert damaged(LocalStorage(where)) == []
        assert newest(LocalStorage(where), **SIZE) == (3, 0)

    run(look)
    print(second[2])
    return second[2], second[3]


def stopped(folder: Path) -> None:
    """A rank that stands still is named after the deadline, hears so itself, and takes part in the next save."""
    where = folder / "run"

    def program(world: World, diary: Diary) -> None:
        storage = Stops(where) if world.rank == 2 else LocalStorage(where)
        three_saves(storage, world, diary, {}, timeout=2.0)

    pids, diaries = start(program, folder)
    assert os.WIFSTOPPED(os.waitpid(pids[2], os.WUNTRACED)[1])
    wait_for("the others", lambda: all(len(diary.read()) == 2 for rank, diary in enumerate(diaries) if rank != 2))
    os.kill(pids[2], signal.SIGCONT)
    words, ranks = all_told(pids, diaries, where)
    assert ranks == [2]
    assert "rank 2: no report within 2 s" in words


def mount(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def full(folder: Path) -> None:
    """Ranks whose disk is full are named with what was to be written and what was free."""
    where = folder / "run"
    where.mkdir()
    mount("-t", "tmpfs", "-o", "size=3m", "none", where)
    try:

        def program(world: World, diary: Diary) -> None:
            grow = (lambda: mount("-o", "remount,size=30m", where)) if world.is_main else (lambda: None)
            three_saves(LocalStorage(where), world, diary, {3: grow})

        words, ranks = all_told(*start(program, folder), where)
        assert ranks
        assert "ENOSPC" in words
        assert "bytes are needed" in words
    finally:
        subprocess.run(["umount", str(where)], check=True)


def read_only(folder: Path) -> None:
    """A rank whose file system has become read-only is named."""
    where = folder / "run"

    def program(world: World, diary: Diary) -> None:
        def freeze() -> None:
            assert ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0
            mount("--make-rprivate", "/")
            mount("--bind", where, where)
            mount("-o", "remount,ro,bind", where)

        def thaw() -> None:
            subprocess.run(["umount", str(where)], check=True)

        storage = LocalStorage(where)
        three_saves(storage, world, diary, {2: freeze, 3: thaw} if world.rank == 2 else {})

    words, ranks = all_told(*start(program, folder), where)
    assert ranks == [2]
    assert "EROFS" in words


# Two jobs.


def two_jobs(folder: Path) -> None:
    """The second is refused while the first lives; if it takes over, the first is refused, and has lost nothing."""
    where, first, second = folder / "run", Diary(folder / "first"), Diary(folder / "second")

    def one() -> None:
        ckpt = open_run(LocalStorage(where), keep_last=1)
        ckpt.save(1, state(1), block=True)
        first.write("saved")
        wait_for("the second", lambda: len(second.read()) == 2)
        try:
            ckpt.save(2, state(2, branch=7), block=True)
        except Fenced as error:
            first.write("fenced", str(error))
        ckpt.close()
        wait_for("its end", lambda: len(second.read()) == 3)

    def other() -> None:
        wait_for("the first", first.read)
        try:
            open_run(LocalStorage(where))
        except Fenced as error:
            second.write("refused", str(error))
        ckpt = open_run(LocalStorage(where), take_over=True, keep_last=1)
        assert ckpt.restore(blank())[1] == 1
        ckpt.save(2, state(2), block=True)
        second.write("saved")
        wait_for("the first", lambda: len(first.read()) == 2)
        ckpt.save(3, state(3), block=True)
        ckpt.close()
        second.write("saved")

    pids = [fork(one), fork(other)]
    assert [end_of(pid) for pid in pids] == [0, 0]
    print(first.read()[-1][1:], second.read()[0][1:])
    assert "took over the run from this job" in first.read()[-1][2]
    assert "writes into this run and is alive" in second.read()[0][2]
    run(lambda: all_is_of_the_second(LocalStorage(where)))


def all_is_of_the_second(storage: LocalStorage) -> None:
    assert newest(storage) == (3, 0)
    assert damaged(storage) == []


def restarted(folder: Path) -> None:
    """A job that was killed does not stand in the way of the next one."""
    where, diary = folder / "run", Diary(folder / "first")

    def one() -> None:
        open_run(LocalStorage(where)).save(1, state(1), block=True)
        diary.write("saved")
        signal.pause()

    pid = fork(one)
    wait_for("the first", diary.read)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # dead, and a zombie until end_of()
    run(lambda: open_run(LocalStorage(where)).save(2, state(2), block=True))
    end_of(pid)
    run(lambda: all_of_both(LocalStorage(where)))


def all_of_both(storage: LocalStorage) -> None:
    assert inventory.complete_steps(storage) == (1, 2)
    assert damaged(storage) == []


STORIES = {story.__name__: story for story in (killed, stopped, full, read_only, two_jobs, restarted)}

if __name__ == "__main__":
    for name in sys.argv[2:]:
        story, *arguments = name.split(":")
        (where := Path(sys.argv[1]) / story).mkdir()
        STORIES[story](where, *arguments)
