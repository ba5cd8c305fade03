"""Record the file calls that Python makes: their lines, and checks for existence, which the kernel filter ignores."""

from __future__ import annotations

import fcntl
import functools
import linecache
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

from allranks.rehearse.probe.record import COMPILER_CACHES, Recorder
from allranks.rehearse.watch.syscalls import opened_for

# By Python's audit event: the operation, and how many of its first arguments are paths.
_AUDITED = {
    "open": ("", 1),
    "os.mkdir": ("mkdir", 1),
    "os.rename": ("rename", 2),
    "os.remove": ("remove", 1),
    "os.rmdir": ("rmdir", 1),
    "os.link": ("link", 2),
    "os.symlink": ("link", 2),
    "os.truncate": ("truncate", 1),
}
_QUESTIONS = {"stat": "exists", "lstat": "exists", "access": "exists", "listdir": "list", "scandir": "list"}


def attach(recorder: Recorder, *, is_watched: bool) -> None:
    """Announce the line of each file call to the watcher. If no watcher sees this process, record the call itself."""
    inside = threading.local()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _AUDITED:
            return
        if getattr(inside, "is_on", False):
            return
        inside.is_on = True
        try:
            _take(recorder, event, arguments, is_watched=is_watched)
        finally:
            inside.is_on = False

    sys.addaudithook(hook)
    for name, operation in _QUESTIONS.items():
        setattr(os, name, _checking(recorder, getattr(os, name), operation, inside))
    for name in _NEVER_INTERRUPTED if is_watched else ():
        setattr(os, name, _repeating(getattr(os, name)))
    for name in ("flock", "lockf"):
        setattr(fcntl, name, _locking(recorder, getattr(fcntl, name)))


def _take(recorder: Recorder, event: str, arguments: tuple[Any, ...], *, is_watched: bool) -> None:
    operation, count = _AUDITED[event]
    if event == "open":
        flags = arguments[2] if isinstance(arguments[2], int) else 0
        operation = opened_for(flags)
    paths = [path for path in map(_text, arguments[:count]) if path]
    if not paths or not any(map(is_interesting, paths)):
        return
    place = recorder.place()
    if operation == "mkdir":
        exist_ok, parents, is_parent = _making(sys._getframe(1))
        direct = _is_from_program(recorder, sys._getframe(1), ("makedirs", "mkdir"))
        direct = direct and not is_parent
        recorder.write("mkdir", place=place, path=paths[0], exist_ok=exist_ok, parents=parents, direct=direct)
    if is_watched:
        recorder.page.announce(threading.get_native_id(), place)
    else:
        existed = os.path.lexists(paths[-1])
        recorder.write("file", place=place, operation=operation, paths=paths, existed=existed)


def _checking(recorder: Recorder, original: Callable[..., Any], operation: str, inside: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def checking(path: Any = ".", *args: Any, **options: Any) -> Any:
        if getattr(inside, "is_on", False) or options.get("dir_fd") is not None:
            return original(path, *args, **options)
        text = _text(path)
        if not text or not is_interesting(text) or not _is_from_program(recorder, sys._getframe(1)):
            return original(path, *args, **options)
        inside.is_on = True
        try:
            place = recorder.place()
            if not place:
                return original(path, *args, **options)
        finally:
            inside.is_on = False
        existed = True
        try:
            result = original(path, *args, **options)
            existed = bool(result) or operation != "exists"
        except OSError:
            existed = False
            raise
        finally:
            data = {"waits": True} if _is_loop(recorder, sys._getframe(1)) else {}
            recorder.write("file", place=place, operation=operation, paths=[text], existed=existed, **data)
        return result

    return checking


def _is_loop(recorder: Recorder, frame: FrameType | None) -> bool:
    """Return whether the program's line that makes a check begins a while loop: it waits for the file."""
    while frame is not None and not recorder.is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return False
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("while ")


# Functions of the standard library that may be between the program and its check for a file.
_BETWEEN = frozenset(
    {
        *(
            "exists",
            "lexists",
            "isfile",
            "isdir",
            "getsize",
            "getmtime",
            "stat",
            "islink",
            "is_symlink",
            "is_file",
            "is_dir",
            "listdir",
        ),
        *("iterdir", "scandir", "glob", "rglob", "iglob", "_iglob", "_glob1", "_glob0", "_listdir", "_iterdir"),
        *("select_from", "_select_from", "walk", "_walk", "accessor"),
    }
)


def _is_from_program(recorder: Recorder, frame: FrameType | None, between: Collection[str] = _BETWEEN) -> bool:
    """Return whether the program makes the check, and not a library function before it acts (os.makedirs)."""
    while frame is not None and not recorder.is_users(frame.f_code.co_filename):
        if frame.f_code.co_name not in between and frame.f_code.co_filename != __file__:
            return False
        frame = frame.f_back
    return frame is not None


def _text(path: Any) -> str:
    try:
        return os.path.abspath(os.fsdecode(path))
    except TypeError:
        return ""  # a descriptor


def _making(frame: FrameType | None) -> tuple[bool, bool, bool]:
    """Return three flags of the call that makes a folder.

    The first: it accepts an existing folder. The second: it makes missing parents first. The third: the folder is such
    a parent.
    """
    for _ in range(8):
        if frame is None:
            break
        names, outer = frame.f_locals, frame.f_back
        if frame.f_code.co_name in ("makedirs", "mkdir") and "exist_ok" in names:
            is_parent = outer is not None and outer.f_code is frame.f_code
            parents = frame.f_code.co_name == "makedirs" or bool(names.get("parents"))
            return is_parent or bool(names["exist_ok"]), parents, is_parent
        frame = outer
    return False, False, False


# Calls that a signal interrupts only because the watcher stops them: neither Python nor programs repeat them.
_NEVER_INTERRUPTED = ("mkdir", "rmdir", "unlink", "remove", "rename", "replace", "link", "symlink", "truncate")


def _repeating(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that makes a call again if a signal came while the watcher had stopped it."""

    @functools.wraps(original)
    def repeating(*args: Any, **options: Any) -> Any:
        while True:
            try:
                return original(*args, **options)
            except InterruptedError:  # the call was not made
                continue

    return repeating


def _locking(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``fcntl.flock`` or ``lockf``. It records a lock once it is taken, and a release before it."""

    @functools.wraps(original)
    def locking(file: Any, operation: int, *args: Any) -> Any:
        descriptor = file if isinstance(file, int) else file.fileno()
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if operation & fcntl.LOCK_UN:
            recorder.write("unlock", path=path)
            return original(file, operation, *args)
        result = original(file, operation, *args)
        recorder.write("lock", path=path, shared=bool(operation & fcntl.LOCK_SH))
        return result

    return locking


# What a program reads of its installation and of the system says nothing about its ranks.
_INSTALLED = tuple(
    {
        *COMPILER_CACHES,
        os.path.join(tempfile.gettempdir(), "pymp-"),  # sockets of multiprocessing, which removes them
        *("/proc/", "/sys/", "/dev/"),
        os.path.realpath(sys.prefix) + os.sep,
        sys.prefix + os.sep,
        os.path.realpath(sys.base_prefix) + os.sep,
    }
)
_SYSTEM = ("/etc/", "/usr/", "/lib", "/bin/", "/run/", "/var/lib/", "/opt/")
_ENDINGS = (".py", ".pyc", ".so", ".pyi")


def is_interesting(path: str) -> bool:
    """Return whether a path may be a file of the program, not of its installation or of the system."""
    return is_restored(path) and not path.endswith(_ENDINGS)


def is_restored(path: str) -> bool:
    """Return whether a path that a run changes is put back: also if its name is that of code, as in a saved config."""
    if path.startswith(_INSTALLED) or "__pycache__" in path or "-packages/" in path:
        return False
    return path.startswith(_working_folder()) or not path.startswith(_SYSTEM)


@functools.cache
def _working_folder() -> str:
    """Return the folder in which the program started: a container may have it in /opt or /usr/src."""
    try:
        return os.getcwd() + os.sep
    except FileNotFoundError:  # the program has removed it
        return os.sep * 2
