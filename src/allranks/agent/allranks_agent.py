"""Report to the launcher how this rank starts, joins, fails and ends; let a failed rank end at once.

Standard library only: it must run in whatever environment the rank's Python comes from, without allranks.

`sitecustomize` calls `activate_at_start()` in a rank that was spawned. A process that forks ranks (the fork server)
calls, in the forked child (the second ends it; SystemExit(0) must pass through the fork server's frames):

    allranks_agent.activate(environ)        # environ: what `environment.for_rank` made; os.environ becomes it
    allranks_agent.run(main)                # main: no arguments, runs the user's program as __main__

`run` consists of these two calls, for a caller that has to do something in between:

    code = allranks_agent.report_failure(error)     # an exception that ended the main thread; 0 for SystemExit(0)
    allranks_agent.finish(code)                     # ends the process, by SystemExit(0) if the code is 0

The messages to the launcher (one JSON object per datagram, each with kind, rank, pid and time):
- hang (culprits, lines, is_over): a `HangReport`.
- started; joining (backend); joined (backend, size: how many ranks have joined). waits (...): a `WaitReport`.
- failed (failure, waits): the rank waits to be released, unless only a thread of it has failed, or it hangs.
- failing (failure, explains: it is the cause of the failures before), exiting (failure; or null and where, with exit
  code 0): an exception is shown, or the process ends (os._exit, os.abort). The launcher acts on the end itself.
- left (exit_code, why, origin, where, unjoined): the main thread has ended normally. The first three are from
  `leave_in_order`, else 0 and ""; where is the line of sys.exit(). `unjoined`: frameworks, if no rank was joined.
- sigterm (saves): whether SIGTERM leads to a save from now on. `saved` (step): all ranks have saved this step.
- leaving (failure or null): the program called jax.distributed.shutdown, perhaps while the exception `failure` was
  being raised. It is no failure yet, but if the job fails from here on, it came first.

A failed rank must not wait in JAX's shutdown barrier (300 s). Once its traceback is printed and reported, it runs its
other atexit functions and ends by os._exit. Before that it waits until the launcher has stopped the others and sends it
a SIGTERM: a rank that sees its sockets close before would fail as well, and print errors that are consequences.

A rank that ends normally does wait in that barrier, as JAX wants. But first it leaves the collectives, so that a rank
that still needs it gets an error at once (see allranks_agent_jax).
"""

from __future__ import annotations

import builtins
import ctypes
import faulthandler
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NoReturn

import allranks_agent_control as control  # type: ignore[import-not-found]
import allranks_agent_exits as exits  # type: ignore[import-not-found]
import allranks_agent_failure as failures  # type: ignore[import-not-found]
import allranks_agent_frames as frames  # type: ignore[import-not-found]
import allranks_agent_guard as guard  # type: ignore[import-not-found]
import allranks_agent_hang as hang  # type: ignore[import-not-found]
import allranks_agent_jax as jax  # type: ignore[import-not-found]
import allranks_agent_joins as joins  # type: ignore[import-not-found]
import allranks_agent_stacks as stacks  # type: ignore[import-not-found]
import allranks_agent_stdin as stdin  # type: ignore[import-not-found]
import allranks_agent_torch as torch  # type: ignore[import-not-found]
import allranks_agent_xla_threads as xla_threads  # type: ignore[import-not-found]

PR_SET_PDEATHSIG = 1
HOLD_SECONDS = 10.0  # a launcher that lives releases a failed rank, or kills it, long before


Listener = Callable[..., None]


class _Rank:
    """The state of the agent in this process. `pid` is None until the agent is active."""

    pid: int | None = None
    listeners: tuple[Listener, ...] = ()
    failed_with: int = 0
    exit_failure: failures.Failure | None = None
    departure: tuple[int, str, str] = (0, "", "")
    rescue: Callable[[BaseException], bool] = staticmethod(lambda _: False)
    is_rescued = False
    unfinished: list[Callable[[], object]] = []  # noqa: RUF012  one rank a process
    failing: tuple[BaseException, failures.Failure] | None = None
    reporting = threading.Lock()
    released = threading.Event()


def activate_at_start() -> None:
    """Activate the agent in a new Python process, and make the kernel kill this process when its parent ends.

    The kernel sends the signal when the parent's *thread* ends: spawn ranks from a thread that lasts.
    """
    activate(os.environ)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def activate(environ: Mapping[str, str]) -> None:
    """Make this process report for the rank that `environ` describes. Call in the main thread, once per process."""
    if environ is not os.environ:
        os.environ.clear()
        os.environ.update(environ)
    os.environ["ALLRANKS_AGENT_PID"] = str(os.getpid())
    _watch_this_process(int(environ["ALLRANKS_RANK"]), environ["ALLRANKS_HOST"], control.send)
    _Rank.listeners += (hang.on_report, joins.on_report, guard.on_report)
    control.keep_spare()
    stacks.register()
    stdin.attach(*failures.RANK, int(environ["ALLRANKS_SIZE"]))
    torch.attach(report, is_active)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=2)  # a crash in C says where Python was
    report("started")


def listen(rank: int, host: str, listener: Listener) -> None:
    """Call `listener(kind, **fields)` with every message, also if `allranks run` did not start this rank.

    The call is made in the thread of the event, after the launcher got the message. `allranks.init()` uses this.
    """
    if is_active():
        _Rank.listeners += (listener,)
    else:
        _watch_this_process(rank, host, listener)


def _watch_this_process(rank: int, host: str, listener: Listener) -> None:
    failures.RANK = rank, host
    _Rank.pid, _Rank.failed_with, _Rank.exit_failure, _Rank.listeners = os.getpid(), 0, None, (listener,)
    _watch_main_thread()
    _watch_other_threads()
    frames.attach()
    exits.attach(_report_exit)
    jax.attach(report, is_active, fail=_fail_late)
    xla_threads.attach()


def is_active() -> bool:
    """Return whether this process reports for its rank. Forked children (DataLoader workers) do not."""
    return _Rank.pid == os.getpid()


def report(kind: str, **fields: object) -> None:
    """Send a message to all listeners."""
    for listener in _Rank.listeners:
        listener(kind, **fields)


def before_end(finish: Callable[[], object]) -> Callable[[], None]:
    """Call `finish` when the main thread ends normally, while this rank still serves the others.

    If `finish` raises, that is a failure of this rank. Return a function that undoes this.
    """
    _Rank.unfinished.append(finish)
    return functools.partial(_Rank.unfinished.remove, finish)


def set_rescue(rescue: Callable[[BaseException], bool]) -> None:
    """Call `rescue(error)` with the exception that ends the main thread, before it counts as a failure.

    If `rescue` calls `leave_in_order` and returns True, this rank ends normally.
    """
    _Rank.rescue = staticmethod(rescue)


def report_peer_failure(failure: Mapping[str, object]) -> None:
    """Report to the launcher the failure of any rank that cannot report it itself: it hangs, or is stopped."""
    control.send("failed", failure=failure, waits=False)


def leave_in_order(code: int, why: str, origin: str) -> None:
    """Record that this rank is about to leave by SystemExit(code), together with all others. This is not a failure.

    `why` says what the ranks have done, `origin` what made them leave.
    """
    _Rank.departure = code, why, origin


def _is_departure(error: BaseException) -> bool:
    return bool(frames.is_a(error, SystemExit) and failures.exit_code_of(error) == _Rank.departure[0] != 0)


def has_failed() -> bool:
    """Return whether this rank has reported its own failure."""
    return bool(_Rank.failed_with)


def report_failure(error: BaseException, *, thread: str = "") -> int:
    """Report an uncaught exception to the launcher (only the first of this rank); return the exit code."""
    failure = known[1] if (known := _Rank.failing) and known[0] is error else failures.of(error, thread=thread)
    if failure["exit_code"] and not _is_departure(error):
        if not thread and _is_rescued(error):
            return _Rank.departure[0]
        _report_failure(failure)
    elif probe := getattr(error, "_allranks_exit", None):
        _Rank.exit_failure = probe.failure
    return int(failure["exit_code"])


def _is_rescued(error: BaseException) -> bool:
    if not _Rank.is_rescued and is_active() and frames.is_a(error, Exception):
        _Rank.is_rescued = _Rank.rescue(error)
    return _Rank.is_rescued


def show(error: BaseException) -> None:
    """Report an uncaught exception, then show it as Python does. (A hook that shows it may end the process.)"""
    if is_active() and _Rank.failing is None and not _Rank.failed_with:
        _Rank.failing = error, failures.of(error)
        report("failing", failure=_Rank.failing[1])
    sys.excepthook(type(error), error, frames.field(error, "__traceback__"))


def explain(error: BaseException, cause: BaseException) -> None:
    """Report `cause` in place of `error`, which ends the main thread, with the line where `error` was raised."""
    _Rank.failing = error, {**failures.of(cause), "where": failures.of(error)["where"]}
    report("failing", failure=_Rank.failing[1], explains=True)


def run(main: Callable[[], object]) -> NoReturn:
    """Run a program's main function, show its exceptions as Python does, and end with `finish`."""
    code = 0
    try:
        main()
    except SystemExit as error:
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        code = report_failure(error)
    except BaseException as error:
        show(error)
        code = report_failure(error)
    finish(code)


def finish(code: int) -> NoReturn:
    """End the process: at once if it failed, otherwise by a SystemExit that the caller must not catch."""
    if code and not _is_departure(SystemExit(code)):
        _end_now(code)
    raise SystemExit(code)


def _report_failure(failure: failures.Failure) -> None:
    waits = threading.current_thread() is threading.main_thread()
    if waits:
        _expect_release()
    with _Rank.reporting:
        if is_active() and not _Rank.failed_with:
            report("failed", failure=failure, waits=waits)
            _Rank.failed_with = failure["exit_code"]


def _expect_release() -> None:
    """From now on, treat SIGTERM as the launcher's permission for this failed rank to end."""
    if control.send in _Rank.listeners:
        signal.signal(signal.SIGTERM, lambda *_: _Rank.released.set())
    else:
        _Rank.released.set()


def _fail_late(error: BaseException) -> NoReturn:
    show(error)
    _end_now(report_failure(error))


def _end_now(code: int) -> NoReturn:
    """Run the atexit functions, flush what Python would flush, wait only for the launcher's release, and end."""
    try:
        _expect_release()
        jax.forget_shutdown()
        exits.finish_as_python()
        if not _Rank.released.is_set():
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # JAX and Gloo complain at length when the others end
        _Rank.released.wait(HOLD_SECONDS)
    finally:
        os._exit(code)


_join_threads = threading._shutdown  # type: ignore[attr-defined]


def _watch_main_thread() -> None:
    """Detect the end of the main thread, before Python joins threads and runs atexit functions.

    Python then calls threading._shutdown, after sys.excepthook, even if the program has replaced that hook. So the
    program's hook is not called late, and cannot hide a failure from us.
    """
    threading._shutdown = _main_thread_ended  # type: ignore[attr-defined]
    sys.exit = _exit_with_probe
    for name in {"exit", "quit"} & vars(builtins).keys():  # from `site`, absent under `python -S`
        setattr(builtins, name, _exit_with_probe)


def _main_thread_ended() -> None:
    failures.clear_raised_in_exit()
    if not is_active():
        return _join_threads()  # type: ignore[no-any-return]
    if (error := failures.that_ended_main()) is not None:
        report_failure(error)
    elif _Rank.exit_failure is not None and _Rank.exit_failure["exit_code"]:
        _report_failure(_Rank.exit_failure)
    if _Rank.failed_with:
        _end_now(_Rank.failed_with)
    try:
        for finish in list(_Rank.unfinished):
            finish()
    except Exception as error:
        _fail_late(error)
    code, why, origin = _Rank.departure
    where = _Rank.exit_failure["where"] if _Rank.exit_failure else ""
    report("left", exit_code=code, why=why, origin=origin, where=where, unjoined=joins.unjoined_frameworks())
    _join_threads()
    if _Rank.is_rescued or guard.has_gloo():  # Python would end with 1, as after any exception; or not at all
        exits.finish_as_python()
        os._exit(code)
    return None


class _ExitProbe:
    """An attribute of a SystemExit that sys.exit raised. It detects when that exception is freed.

    A SystemExit that ends the program is freed with no Python frame below; a caught SystemExit is freed in a frame.
    There is no hook for SystemExit, and the interpreter does not report its code before JAX's shutdown barrier.
    """

    def __init__(self, failure: failures.Failure) -> None:
        self.failure = failure

    def __del__(self) -> None:
        if _calling_frame() is None:
            _Rank.exit_failure = self.failure

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # the exception may be pickled and sent; its probe stays here


def _calling_frame() -> FrameType | None:
    try:
        return sys._getframe(2)
    except ValueError:
        return None


def _exit_with_probe(code: Any = None) -> NoReturn:
    """The replacement of sys.exit: raise SystemExit, and attach an _ExitProbe to it."""
    error = SystemExit() if code is None else SystemExit(code)
    in_main = threading.current_thread() is threading.main_thread()
    if is_active() and in_main and not failures.is_describing():
        failure = failures.of(error, frame=sys._getframe(1), handling=sys.exc_info()[1])
        if not _is_departure(error):
            error._allranks_exit = _ExitProbe(failure)  # type: ignore[attr-defined]
    try:
        raise error
    finally:
        del error  # or error -> traceback -> this frame -> error would keep it alive


def _watch_other_threads() -> None:
    """Report an exception that ended a thread. No hook of the program can replace ours, and Python prints as usual."""
    make = threading._make_invoke_excepthook  # type: ignore[attr-defined]
    if getattr(make, "__name__", "") == "_make_hook":
        return

    def _make_hook() -> Callable[[threading.Thread], None]:
        invoke = make()

        def show_then_report(thread: threading.Thread) -> None:
            error = sys.exc_info()[1]
            invoke(thread)
            if error is not None and not isinstance(error, SystemExit) and is_active():
                report_failure(error, thread=thread.name)

        return show_then_report

    threading._make_invoke_excepthook = _make_hook  # type: ignore[attr-defined]


def _report_exit(error: SystemExit, frame: FrameType, what: str = "") -> None:
    """Report that this process is about to end, unless a failure was reported, which is then the reason."""
    is_known = _Rank.failing is not None or _Rank.failed_with
    if not is_active() or is_known or _is_departure(error):
        return
    handling = sys.exc_info()[1] or failures.that_ended_main()
    thread = threading.current_thread()
    name = "" if thread is threading.main_thread() else thread.name
    failure = failures.of(error, thread=name, frame=frame, handling=handling)
    if not failure["exit_code"]:
        report("exiting", failure=None, where=failure["where"])
        return
    if what:
        failure["what"] = what
    _Rank.failing = error, failure
    report("exiting", failure=failure)
