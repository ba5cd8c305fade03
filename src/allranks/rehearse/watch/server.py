"""Process the stopped file calls of all ranks, in a thread of the launcher: record, delay or fail, and release."""

from __future__ import annotations

import array
import heapq
import json
import os
import platform
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_hexdigest

from allranks.rehearse.probe.page import KILL_AT, POSITION, STEP, Page
from allranks.rehearse.watch import listener as kernel
from allranks.rehearse.watch.stacks import Stacks
from allranks.rehearse.watch.syscalls import AT_FDCWD, Call, decode, opened_for
from allranks.rehearse.watch.undo import Journal


@dataclass(frozen=True, slots=True)
class Effect:
    """A file call of a rank, just before the kernel makes it."""

    rank: int
    operation: str
    paths: tuple[str, ...]
    existed: bool
    position: int
    step: int
    time: float
    process: int
    thread: int
    content: str = ""  # a digest of a small file that is renamed
    place: int = 0  # as the rank's own trace numbers it
    frames: tuple[tuple[str, int, str], ...] = ()
    content_after: str = ""  # of a small file that is written: a digest of what the next writer has found in it


class Treatment(NamedTuple):
    """What to do with a call: let it wait ``seconds``, and fail it with an error number (0: let it continue).

    ``fault`` is the action of a fault that strikes here, else "". With "kill" the rank is killed as if right after the
    call: if the call opens a file to write it anew, the file is empty.
    """

    seconds: float = 0.0
    failing: int = 0
    fault: str = ""


AS_IT_IS = Treatment()
Treat = Callable[[Effect], Treatment]


@dataclass(slots=True)
class _Rank:
    number: int
    process: int
    page: Page
    listener: int


class Server:
    """The watcher. Ranks send their listeners to the socket ``path``.

    ``effects`` grows while they run, and ``struck``: the calls at which a fault struck, each with its action.
    """

    def __init__(
        self,
        path: str,
        *,
        is_interesting: Callable[[str], bool],
        is_restored: Callable[[str], bool] = lambda _: True,
        treat: Treat | None = None,
        on_effect: Callable[[Server, Effect], None] | None = None,
        journal: Journal | None = None,
        real_path: Callable[[int, str], str] | None = None,
    ) -> None:
        self.effects: list[Effect] = []
        self.struck: list[tuple[Effect, str]] = []
        self.failure: BaseException | None = None
        self._writers: dict[str, int] = {}
        self.path = path
        self._is_interesting, self._is_restored = is_interesting, is_restored
        self._treat, self._journal = treat, journal
        self._on_effect, self._real_path = on_effect, real_path
        self._machine = platform.machine()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(path)
        self._socket.listen(128)
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ, None)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._waiting: list[tuple[float, int, int, kernel.Stopped, int]] = []
        self._stacks = Stacks()
        self._is_over = False
        self._pages: list[Page] = []
        self._thread = threading.Thread(target=self._run, name="allranks-watch", daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        os.write(self._waker, b"x")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Rank):
                self._leave(key.data)
        self._selector.close()
        self._socket.close()
        os.unlink(self.path)
        os.close(self._wake)
        os.close(self._waker)

    def steps(self) -> int:
        """Return how many steps the rank that is farthest has made. Any thread may call this."""
        return max((page.get(STEP) for page in [*self._pages]), default=0)

    def kill_ranks(self, *, steps: int) -> None:
        """Make each rank be killed when it is ``steps`` steps beyond the step of the rank that is farthest now."""
        ranks = [key.data for key in self._selector.get_map().values() if isinstance(key.data, _Rank)]
        due = max((rank.page.get(STEP) for rank in ranks), default=0) + steps
        for rank in ranks:
            rank.page.set(KILL_AT, max(1, due))

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._turn()
        except BaseException as error:
            self.failure = error  # the ranks' next file calls fail with ENOSYS once their listeners are closed
            raise

    def _turn(self) -> None:
        timeout = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
        for key, events in self._selector.select(timeout):
            if key.fileobj is self._socket:
                self._accept()
            elif isinstance(key.data, _Rank) and events & selectors.EVENT_READ:
                self._take(key.data)
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, listener, stopped, failing = heapq.heappop(self._waiting)
            kernel.answer(listener, stopped, failing=failing)

    def _accept(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            connection.settimeout(5.0)
            size = array.array("i").itemsize
            data, ancillary, _, _ = connection.recvmsg(4096, socket.CMSG_SPACE(2 * size))
            descriptors = array.array("i")
            for level, kind, raw in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    descriptors.frombytes(raw[: len(raw) - len(raw) % size])
            if not data:
                return  # the kernel did not let the rank install its filter: the rank records that itself
            said = json.loads(data)
            page_descriptor, listener = descriptors
            rank = _Rank(said["rank"], said["process"], Page(page_descriptor), listener)
            self._pages.append(rank.page)
            self._selector.register(listener, selectors.EVENT_READ, rank)
            connection.send(b"ok")

    def _leave(self, rank: _Rank) -> None:
        self._waiting = [one for one in self._waiting if one[2] != rank.listener]
        heapq.heapify(self._waiting)
        self._selector.unregister(rank.listener)
        os.close(rank.listener)
        os.close(rank.page.descriptor)

    def _take(self, rank: _Rank) -> None:
        stopped = kernel.receive(rank.listener)
        if stopped is None:
            if kernel.has_ended(rank.listener):
                self._leave(rank)
            return
        call = decode(self._machine, stopped.call, stopped.arguments)
        effect = self._effect(rank, stopped, call) if call is not None else None
        treatment = AS_IT_IS
        if effect is not None:
            self._note_content(effect)
            self.effects.append(effect)
            if self._on_effect is not None:
                self._on_effect(self, effect)
            if self._treat is not None:
                treatment = self._treat(effect)
            if treatment.fault:
                self.struck.append((effect, treatment.fault))
            if treatment.fault == "kill":
                _kill(effect)
                return
        if treatment.seconds > 0:
            due = time.monotonic() + treatment.seconds
            heapq.heappush(self._waiting, (due, stopped.number, rank.listener, stopped, treatment.failing))
        else:
            kernel.answer(rank.listener, stopped, failing=treatment.failing)

    def _note_content(self, effect: Effect) -> None:
        """Note what the last writer of a file has left in it, before another call changes the file."""
        if effect.operation not in _WRITES:
            return
        path = effect.paths[-1]
        if (last := self._writers.get(path)) is not None:
            self.effects[last] = replace(self.effects[last], content_after=_digest(path))
        self._writers[path] = len(self.effects)

    def note_contents(self) -> None:
        """Note what the last writer of each file has left. Call this once the ranks have ended."""
        for path, last in self._writers.items():
            self.effects[last] = replace(self.effects[last], content_after=_digest(path))

    def _effect(self, rank: _Rank, stopped: kernel.Stopped, call: Call) -> Effect | None:
        """Return what a stopped call is about to do, or None if it does not use the program's own files.

        Note in the journal what the call may change.
        """
        place = rank.page.take(stopped.thread)
        paths = tuple(filter(None, (self._path(stopped.thread, *one) for one in call.paths)))
        if len(paths) != len(call.paths):
            return None
        is_interesting, is_restored = any(map(self._is_interesting, paths)), any(map(self._is_restored, paths))
        if self._real_path is not None:
            paths = tuple(self._real_path(rank.number, path) for path in paths)
        operation = call.operation
        if call.flags_at:
            operation = opened_for(int.from_bytes(kernel.read_memory(stopped.thread, call.flags_at, 8), "little"))
        if is_restored and self._journal is not None:
            self._journal.note(operation, paths)
        if not is_interesting:
            return None
        frames: tuple[tuple[str, int, str], ...] = ()
        if not place and stopped.thread == rank.process and operation != "read":
            frames = self._stacks.of_main_thread(rank.process, rank.page)
        return Effect(
            rank.number,
            operation,
            paths,
            os.path.lexists(paths[-1]),
            rank.page.get(POSITION),
            rank.page.get(STEP),
            time.monotonic(),
            rank.process,
            stopped.thread,
            _digest(paths[0]) if operation == "rename" else "",
            place,
            frames,
        )

    def _path(self, thread: int, directory: int, address: int) -> str:
        text = kernel.read_text(thread, address)
        if not text:
            return ""
        if not os.path.isabs(text):
            link = "cwd" if directory == AT_FDCWD else f"fd/{directory}"
            try:
                text = os.path.join(os.readlink(f"/proc/{thread}/{link}"), text)
            except OSError:
                return ""
        return os.path.normpath(text)


# The operations that change a file's content.
_WRITES = ("create", "write", "append", "truncate", "exclusive")
# Larger files are not digested, so that the rank does not wait for it.
_DIGESTED = 1 << 20


def _digest(path: str) -> str:
    """Return a digest of a small file, "" for all else."""
    try:
        if os.path.isfile(path) and os.path.getsize(path) <= _DIGESTED:
            return xxh3_64_hexdigest(Path(path).read_bytes())
    except OSError:
        pass  # somebody has removed it meanwhile
    return ""


def _kill(effect: Effect) -> None:
    """Kill the rank that makes a call, and leave the file as it is right after the call."""
    if effect.operation in ("create", "exclusive"):
        with open(effect.paths[-1], "wb"):
            pass
    os.kill(effect.process, signal.SIGKILL)
