"""Run the fork server, the process between launcher and ranks: it starts and reaps them, and none outlives the job.

Why a separate process:
- It is single-threaded and imports next to nothing, so it can fork a rank at any time: with the frameworks already
  imported (a *zygote*), or to exec a command.
- It is a subreaper: a process that a rank starts and leaves behind becomes the fork server's child, so it can always be
  found.
- When the launcher ends, even by SIGKILL, the fork server sees the end of their socket and kills everything. When the
  fork server itself is killed, the kernel kills the ranks (PR_SET_PDEATHSIG).
- It ignores the signals that end a job, SIGUSR1 and SIGUSR2: a scheduler sends them to every process of a job (Slurm,
  systemd), and the ranks still have to save.

It runs until its socket ends. In a forked rank, ``serve`` returns the target that the rank is to run. The rank uses
nothing of the server's state.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import allranks
from allranks.agent import load
from allranks.failure import text_of
from allranks.launch import fork_server_messages as messages
from allranks.launch import forked_rank
from allranks.launch.job import Call, Command, from_json
from allranks.launch.preload import PreloadPlan

has_children = load("allranks_agent_missing_ranks").has_children

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# What wakes the fork server is an event; this is only how often it looks whether the launcher is still its parent,
# because a process that the launcher forked may hold the other end of the socket open.
PARENT_CHECK_SECONDS = 1.0
STUCK_AFTER = 5.0
# The names that most ranks use; each is imported at its first use.
PRELOADED = ("init", "current", "main_rank", "global_batch", "describe")


def main(fd: int, path: Sequence[str], files: int | None = None) -> None:
    """Serve messages from a socket; in a forked rank, run the rank.

    ``path`` is the ``sys.path`` that ranks get, ``files`` how many descriptors they may open (None: as many as we).
    """
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    before: dict[int, Any] = {signum: signal.signal(signum, signal.SIG_IGN) for signum in messages.IGNORED}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, messages.IGNORED)  # `fork_server` blocks them while Python starts
    _set_process_control(PR_SET_CHILD_SUBREAPER, 1)
    spawn = _ForkServer(socket.socket(fileno=fd), before).serve()
    if spawn is None:
        os._exit(0)  # nothing to flush, and taking the imported frameworks down would cost time
    forked_rank.run_as_rank(from_json(spawn.target), env=spawn.env, path=path)


def _set_process_control(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


class _ForkServer:
    """The server.

    ``handlers`` are the original handlers of the signals that it ignores; its ranks get these handlers.
    """

    def __init__(self, sock: socket.socket, handlers: Mapping[int, Any]) -> None:
        self._sock = sock
        self._outbox = messages.Outbox(sock)
        self._handlers = handlers
        self._launcher = os.getppid()
        self._pids: dict[int, int] = {}  # rank -> pid, of ranks that live
        self._commands: set[int] = set()  # ranks whose process may be a shell around the one that trains
        self._zygote = False
        self._waker, self._wakened = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakened, warn_on_full_buffer=False)

    def serve(self) -> messages.Spawn | None:
        """Follow messages until the launcher ends, then return None.

        In a forked rank, return the target that it is to run.
        """
        while os.getppid() == self._launcher:
            sock = self._sock.fileno()
            sending = [] if self._outbox.is_empty else [sock]
            readable, writable, _ = select.select([sock, self._waker], sending, [], PARENT_CHECK_SECONDS)
            if writable:
                self._send_waiting()
            self._reap_children()
            if sock not in readable:
                continue
            got = messages.receive(self._sock)
            if got is None:
                break
            message, fds = got
            if isinstance(message, messages.Spawn):
                if self._spawn_rank(message, *fds):
                    return message
            else:
                self._handle_message(message)
        self._kill_descendants()
        return None

    def _handle_message(self, message: messages.Message) -> None:
        if isinstance(message, messages.Preload):
            loaded, obstacle = prepare(message)
            self._zygote = not obstacle
            self._send_report(messages.Ready(loaded, obstacle))
        elif isinstance(message, messages.Kill):
            self._signal_ranks(message)
        elif isinstance(message, messages.Sweep):
            self._send_report(messages.Swept(self._kill_descendants()))

    def _signal_ranks(self, kill: messages.Kill) -> None:
        """Send a signal to ranks, the last rank first.

        After rank 0 of a JAX world has ended, the other ranks would print many errors.
        """
        living = [(rank, agent) for rank, agent in zip(kill.ranks, kill.agents, strict=True) if rank in self._pids]
        asked = kill.signum in messages.FOR_PROGRAMS and self._commands.intersection(rank for rank, _ in living)
        children = children_by_parent() if asked else {}
        for rank, agent in reversed(living):
            pid = self._pids[rank]
            if kill.signum not in messages.FOR_PROGRAMS:
                signal_group(pid, kill.signum)
            elif rank not in self._commands:
                _send_signal(pid, kill.signum)
            elif agent in (pid, *descendants(pid, children)):
                _send_signal(agent, kill.signum)
            else:  # no Python of ours below the command, as far as is known
                signal_group(pid, kill.signum)

    def _spawn_rank(self, spawn: messages.Spawn, out: int, err: int) -> bool:
        """Start a rank. Returns True in the rank if it is to run Python code in this process."""
        fork_server = os.getpid()
        if isinstance(from_json(spawn.target), Command):
            self._commands.add(spawn.rank)
        try:
            pid = os.fork()
        except OSError as error:
            os.write(err, f"allranks: rank {spawn.rank} could not be started: {error}\n".encode())
            self._send_report(messages.Exited(spawn.rank, 1, time.time(), 0))
            pid = None
        if pid == 0:
            return self._become_rank(spawn, fork_server, out, err)
        os.close(out)
        os.close(err)
        if pid is not None:
            self._pids[spawn.rank] = pid
            self._send_report(messages.Started(spawn.rank, pid, time.time()))
        return False

    def _become_rank(self, spawn: messages.Spawn, fork_server: int, out: int, err: int) -> bool:
        """Set up a forked child as a rank. Returns only if its target is Python code that runs in this process."""
        os.setsid()
        _set_process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != fork_server:  # it died before the kernel knew our wish
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for fd in (out, err, self._waker, self._wakened):
            os.close(fd)
        self._sock.close()
        try:
            os.chdir(spawn.cwd)
        except OSError as error:
            os.write(2, f"allranks: rank {spawn.rank}: no folder {spawn.cwd}: {error.strerror}\n".encode())
            os._exit(126)
        target = from_json(spawn.target)
        if self._zygote and not isinstance(target, Command):
            return True
        argv = target.argv(sys.executable)
        try:
            os.execvpe(argv[0], argv, spawn.env)
        except OSError as error:
            os.write(2, f"allranks: rank {spawn.rank} could not run {argv[0]!r}: {error.strerror}\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)

    def _reap_children(self) -> None:
        while True:
            try:
                os.read(self._waker, 4096)
            except BlockingIOError:
                break
        while (ended := _wait_for_child(os.WNOHANG)) is not None:
            self._record_end(*ended)

    def _record_end(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        rank = next((rank for rank, known in self._pids.items() if known == pid), None)
        if rank is None:
            return  # an orphan of a rank
        del self._pids[rank]
        code = os.waitstatus_to_exitcode(status)
        self._send_report(messages.Exited(rank, code, time.time(), usage.ru_maxrss * 1024))

    def _kill_descendants(self) -> tuple[int, ...]:
        """Kill every descendant and wait for their ends.

        Return the pids that still live after ``STUCK_AFTER`` seconds.
        """
        deadline = time.monotonic() + STUCK_AFTER
        living: list[int] = []
        while has_children():
            if time.monotonic() >= deadline:
                return tuple(living)
            living = descendants(os.getpid())
            for pid in living:
                _send_signal(pid, signal.SIGKILL)
            select.select([self._waker], [], [], 0.1)
            self._reap_children()
        return ()

    def _send_report(self, message: messages.Message) -> None:
        with contextlib.suppress(BrokenPipeError):  # the launcher has ended: the next read of the socket ends the loop
            self._outbox.put(message)

    def _send_waiting(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._outbox.flush()


def _wait_for_child(options: int) -> tuple[int, int, resource.struct_rusage] | None:
    try:
        pid, status, usage = os.wait4(-1, options)
    except ChildProcessError:
        return None
    return (pid, status, usage) if pid else None


def signal_group(pid: int, signum: int) -> None:
    """Send a signal to the process group of a rank that is not yet reaped."""
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:  # forked a moment ago: its own group does not exist yet
        os.kill(pid, signum)


def _send_signal(pid: int, signum: int) -> None:
    """Send a signal to a process, unless the process has ended and was reaped."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def children_by_parent() -> dict[int, list[int]]:
    """Return the pids of all processes, zombies included, by the pids of their parents, from /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry))
    return children


def descendants(root: int, children: Mapping[int, Sequence[int]] | None = None) -> list[int]:
    """Return the pids of all processes below the process ``root``. ``children``: from ``children_by_parent``."""
    children = children_by_parent() if children is None else children
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), ())
        found += below
        queue += below
    return found


def prepare(message: messages.Preload) -> tuple[tuple[str, ...], str]:
    """Import what the ranks will share.

    Return the modules, and the reason why the process must not be forked, or "".
    """
    if message.call:
        call = from_json(message.call)
        assert isinstance(call, Call)
        try:
            forked_rank.call(call)
        except Exception as error:
            return (), text_of(error)
        return (), _freeze_imports()
    load("allranks_agent_guard").before_imports()
    target = from_json(message.target)
    loaded, why = preload(forked_rank.plan_for(target, cwd=message.cwd))
    return loaded, why or _shadow(forked_rank.first_on_path(target, cwd=message.cwd))


def _shadow(folder: str) -> str:
    """Return which file or package of the ranks' first folder is not what was imported here under its name, or ""."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return ""  # not there, or not to be read: the rank itself will say so
    for entry in entries:
        file = entry.path if entry.name.endswith(".py") else os.path.join(entry.path, "__init__.py")
        known = sys.modules.get(entry.name.removesuffix(".py"))
        if known is not None and os.path.isfile(file) and not _is_of(known, file):
            return f"{entry.name} has the name of a module that was imported from elsewhere"
    return ""


def _is_of(module: ModuleType, file: str) -> bool:
    origin = getattr(module, "__file__", None)
    return origin is not None and os.path.realpath(origin) == os.path.realpath(file)


def preload(plan: PreloadPlan) -> tuple[tuple[str, ...], str]:
    """Import the modules of the plan. Return the modules, and the reason why the process must not be forked, or ""."""
    if plan.obstacle:
        return (), plan.obstacle
    loaded: list[str] = []
    for module in plan.modules:
        try:
            if module not in sys.modules and importlib.util.find_spec(module) is None:
                continue  # a name inside a module ("jax.jit"), or a package that the script can do without
            importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        except Exception as error:
            return tuple(loaded), f"import {module} raised {text_of(error)}"
        loaded.append(module)
        if why := why_not_forkable():
            return tuple(loaded), f"import {module} {why}"
    if "allranks" in loaded:
        for name in PRELOADED:
            getattr(allranks, name)
    return tuple(loaded), _freeze_imports()


def _freeze_imports() -> str:
    gc.collect()
    gc.freeze()  # what is loaded now stays: the collector need not touch, and so copy, its pages in each rank
    why = why_not_forkable()
    return f"the imports of the ranks {why}" if why else ""


def why_not_forkable() -> str:
    """Return why ranks must not be forked from this process ("starts 2 threads"), or "" if they may."""
    if len(tasks := os.listdir("/proc/self/task")) > 1:
        return f"starts {len(tasks) - 1} thread{'s' if len(tasks) > 2 else ''}"
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is not None and bridge.backends_are_initialized():
        return "initialises JAX's devices"
    return ""
