"""Record what a rank sends to experiment trackers: the runs that it begins, and the values that it logs.

Values that the program writes as JSON are logged values, too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from allranks.agent import load
from allranks.rehearse.probe.record import Recorder, is_main_thread

imports = load("allranks_agent_imports")

# By module: the function that begins a run, and the one that logs values.
_TRACKERS = {
    "wandb": ("init", "log"),
    "trackio": ("init", "log"),
    "swanlab": ("init", "log"),
    "mlflow": ("start_run", "log_metrics"),
    "comet_ml": ("start", ""),
    "neptune": ("init_run", ""),
    "clearml": ("", ""),
}
_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX", "tensorboardX.writer")
_MOST = 400
# How deep, and how many keys of a dict, are looked at in a value that is written as JSON.
_DEPTH, _KEYS = 4, 40


def attach(recorder: Recorder) -> None:
    """Watch the known trackers, once they are imported."""
    for name, (begin, log) in _TRACKERS.items():
        imports.after_import(name, functools.partial(_watch, recorder, name, begin, log))
    imports.after_import("json", functools.partial(_watch_json, recorder))
    for name in _WRITERS:
        imports.after_import(name, functools.partial(_watch_writer, recorder))


def _watch(recorder: Recorder, name: str, begin: str, log: str, module: Any) -> None:
    if begin and hasattr(module, begin):
        original = getattr(module, begin)

        @functools.wraps(original)
        def beginning(*args: Any, **options: Any) -> Any:
            said = {key: str(options[key]) for key in ("group", "id", "mode", "run_id", "resume") if key in options}
            if options.get("mode") != "disabled":
                recorder.write("tracker", tracker=name, run=said)
            return original(*args, **options)

        setattr(module, begin, beginning)
    if log and hasattr(module, log):
        setattr(module, log, _logging(recorder, getattr(module, log), first=0))
    if name == "mlflow" and hasattr(module, "log_metric"):
        module.log_metric = _logging_one(recorder, module.log_metric, first=0)


def _watch_json(recorder: Recorder, module: Any) -> None:
    for name in ("dump", "dumps"):
        setattr(module, name, _dumping(recorder, getattr(module, name)))


def _dumping(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    counted = [0]

    @functools.wraps(original)
    def dump(value: Any, *args: Any, **options: Any) -> Any:
        is_program = recorder.is_users(sys._getframe(1).f_code.co_filename)
        if is_program and counted[0] < _MOST and is_main_thread():
            for name, one in _newest(value):
                counted[0] += _note(recorder, name, one, is_file=True)
        return original(value, *args, **options)

    return dump


def _newest(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the floats in a nested value by their names. Of a list, only the last item is new: it is a history."""
    if isinstance(value, Mapping) and depth < _DEPTH:
        for key, one in list(value.items())[:_KEYS]:
            yield from _newest(one, str(key), depth + 1)
    elif isinstance(value, list | tuple) and value and depth < _DEPTH:
        yield from _newest(value[-1], name, depth + 1)
    elif isinstance(value, float):
        yield name or "value", value


def _watch_writer(recorder: Recorder, module: Any) -> None:
    writer = getattr(module, "SummaryWriter", None)
    if writer is None or getattr(writer.add_scalar, "_allranks", False):
        return
    begin = writer.__init__

    @functools.wraps(begin)
    def beginning(one: Any, *args: Any, **options: Any) -> None:
        recorder.write("tracker", tracker="tensorboard")
        begin(one, *args, **options)

    writer.__init__ = beginning
    writer.add_scalar = _logging_one(recorder, writer.add_scalar, first=1)
    writer.add_scalar._allranks = True


def _logging(recorder: Recorder, original: Callable[..., Any], *, first: int) -> Callable[..., Any]:
    counted = [0]

    @functools.wraps(original)
    def log(*args: Any, **options: Any) -> Any:
        values = args[first] if len(args) > first else next(iter(options.values()), {})
        if isinstance(values, Mapping) and counted[0] < _MOST:
            for name, value in values.items():
                counted[0] += _note(recorder, name, value)
        return original(*args, **options)

    return log


def _logging_one(recorder: Recorder, original: Callable[..., Any], *, first: int) -> Any:
    counted = [0]

    @functools.wraps(original)
    def log(*args: Any, **options: Any) -> Any:
        if len(args) > first + 1 and counted[0] < _MOST:
            counted[0] += _note(recorder, args[first], args[first + 1])
        return original(*args, **options)

    return log


def _note(recorder: Recorder, name: Any, value: Any, *, is_file: bool = False) -> int:
    if not isinstance(name, str) or isinstance(value, str | bytes | bool):
        return 0
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0
    recorder.write("logged", name=name, value=number, is_file=is_file)
    return 1
