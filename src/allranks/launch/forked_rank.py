"""Turn a forked process into a rank, as if ``python train.py`` had started it, and run its target.

Three differences remain. The frameworks in ``sys.modules`` are already imported. All ranks share the seed of
``hash(str)``. The agent holds a descriptor (far above the others) into which CPython may write stacks.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import io
import json
import os
import runpy
import sys
import tokenize
import types
from collections.abc import Mapping, Sequence
from typing import Any

from allranks.agent import load
from allranks.callsite import is_users
from allranks.launch.job import Call, Command, Module, Script, Target
from allranks.launch.preload import PreloadPlan, plan_preload

_kept_alive: list[object] = []  # the fork server's __main__: its last frame still runs below the rank's program


def run_as_rank(target: Target, *, env: Mapping[str, str], path: Sequence[str]) -> None:
    """Turn a freshly forked process into a rank, and run its target to the end.

    Returns, or raises SystemExit, when the target's main thread ends. The caller must then let the interpreter shut
    down.
    """
    sys.path[:] = path
    agent = load()  # what the ``sitecustomize`` of a fresh interpreter does
    agent.activate(env)
    sys.stdout = sys.__stdout__ = _open_standard_stream(1, "<stdout>", like=sys.__stdout__)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _open_standard_stream(2, "<stderr>", like=sys.__stderr__)  # type: ignore[misc]
    reseed_generators()
    run(target, agent)


def _open_standard_stream(fd: int, name: str, *, like: object) -> io.TextIOWrapper:
    """Return a standard stream as ``python -u`` opens it: printed text is written at once."""
    raw = io.FileIO(fd, "wb", closefd=False)
    raw.name = name
    encoding, errors = getattr(like, "encoding", "utf-8"), getattr(like, "errors", "backslashreplace")
    stream = io.TextIOWrapper(raw, encoding, errors, line_buffering=True, write_through=True)
    stream.mode = "w"  # type: ignore[misc]
    return stream


def reseed_generators() -> None:
    """Reseed the random generators of this process, so that the ranks do not share their state after the fork.

    Otherwise a script that forgets to seed would seem to work. Python's ``random`` reseeds itself after a fork; NumPy's
    and torch's global generators do not.
    """
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    if (torch := sys.modules.get("torch")) is not None:
        torch.seed()


def run(target: Target, agent: Any) -> None:
    """Run a target as the main program. Show and report its exceptions as a fresh interpreter would."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    _kept_alive.append(sys.modules["__main__"])
    sys.modules["__main__"] = main
    sys.orig_argv[:] = target.argv(sys.executable)
    try:
        if isinstance(target, Script):
            _run_script(target, main)
        elif isinstance(target, Module):
            _run_module(target)
        elif isinstance(target, Call):
            _set_line(["-c", target.function, target.arguments], "")
            call(target)
    except SystemExit as error:
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        agent.finish(agent.report_failure(_without_our_frames(error, agent.frames)))
    except BaseException as error:
        _without_our_frames(error, agent.frames)
        sys.last_type, sys.last_value = type(error), error
        sys.last_traceback = agent.frames.field(error, "__traceback__")
        agent.show(error)
        agent.finish(agent.report_failure(error))


def _without_our_frames(error: BaseException, frames: Any) -> BaseException:
    """Remove the frames of this file from an exception's traceback; return the exception."""
    trace = frames.field(error, "__traceback__")
    while trace is not None and trace.tb_frame.f_code.co_filename == _without_our_frames.__code__.co_filename:
        trace = trace.tb_next
    frames.set_traceback(error, trace)
    return error


def _set_line(argv: Sequence[str], first: str) -> None:
    """Set the command line that a program sees.

    ``first`` is the folder from which the program imports its own modules.
    """
    sys.argv[:] = argv
    if not sys.flags.safe_path:
        sys.path.insert(0, first)


def _run_script(target: Script, main: types.ModuleType) -> None:
    file = os.path.abspath(target.path)
    _set_line([target.path, *target.arguments], os.path.dirname(os.path.realpath(file)))
    loader = importlib.machinery.SourceFileLoader("__main__", file)
    main.__dict__.update(__file__=file, __cached__=None, __loader__=loader)
    with open(file, "rb") as source:
        code = loader.source_to_code(source.read(), file)
    exec(code, main.__dict__)  # noqa: S102 - it is what a rank is for


def _run_module(target: Module) -> None:
    _set_line(["-m", *target.arguments], os.getcwd())
    runpy._run_module_as_main(target.name)  # type: ignore[attr-defined]  # what `python -m` itself calls


def call(target: Call) -> None:
    """Call the target's function in this process."""
    module, name = target.function.split(":")
    getattr(importlib.import_module(module), name)(*json.loads(target.arguments))


def plan_for(target: Target, *, cwd: str) -> PreloadPlan:
    """Return the plan of what to import before the ranks are forked, from the source of the target and of its modules.

    For a command, the target is the first Python file in its words.
    """
    if isinstance(target, Command):
        files = [word for word in " ".join(target.arguments).replace(";", " ").split() if word.endswith(".py")]
        return plan_for(Script(files[0]), cwd=cwd) if files else PreloadPlan(())
    roots = [entry for entry in sys.path if entry and is_users(os.path.join(entry, ""))]
    roots.insert(0, first_on_path(target, cwd=cwd))
    if isinstance(target, Script):
        names = {"__main__": _read_source(os.path.join(cwd, target.path))}
    else:
        name = target.name if isinstance(target, Module) else getattr(target, "function", "").partition(":")[0]
        names = {module: _find_source(module, roots) for module in (f"{name}.__main__", name) if name}
    for module, text in names.items():
        if text is not None:
            return plan_preload(text, name=module, find=lambda wanted: _find_source(wanted, roots), env=os.environ)
    return PreloadPlan(())


def first_on_path(target: Target, *, cwd: str) -> str:
    """Return the folder that a rank of this target searches first for modules."""
    return os.path.dirname(os.path.join(cwd, target.path)) if isinstance(target, Script) else cwd


def _find_source(module: str, roots: Sequence[str]) -> str | None:
    """Return the source of a module below one of these folders. Return None for any other module, and for ours."""
    if module.split(".")[0] == "allranks":
        return None  # it imports a framework only if the script has done so
    base = module.replace(".", "/")
    files = (os.path.join(root, base + end) for root in roots for end in (".py", "/__init__.py"))
    return next((text for file in files if (text := _read_source(file)) is not None), None)


def _read_source(file: str) -> str | None:
    try:
        with tokenize.open(file) as source:
            return source.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None  # not there, or not Python: the rank itself will say so
