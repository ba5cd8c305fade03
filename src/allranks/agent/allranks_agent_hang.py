"""Start the hang watch in a program that joins the other ranks and does not import allranks.

The watch is a part of the package allranks. It is imported in a thread, a moment after the program has joined, so that
the program's start is not delayed. If the rank's Python does not have the package, the one around this file is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
START_SECONDS = 1.0  # the program compiles and reads its first data meanwhile
_OVER = threading.Event()
_has_begun = False


def on_report(kind: str, **fields: Any) -> None:
    """Handle a message of the agent: start the watch once this rank has joined all others."""
    global _has_begun
    if kind in ("left", "failed"):
        _OVER.set()
    elif kind == "joined" and is_wanted() and not _has_begun and fields["size"] == int(os.environ["ALLRANKS_SIZE"]) > 1:
        _has_begun = True
        _publish_pid()
        threading.Thread(target=_start_watch, args=(fields["backend"],), name="allranks-start", daemon=True).start()


def is_wanted() -> bool:
    """Return whether the launcher wants a hang watch. (The watch itself refuses a value that is no number.)"""
    return os.environ.get("ALLRANKS_HANG_AFTER", "").strip() not in ("0", "0.0")


def _publish_pid() -> None:
    """Write this process' id to a file.

    Other ranks' watches may have to check this rank before its own watch starts.
    """
    folder = f"{os.environ['ALLRANKS_CONTROL']}.watch/pid"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{os.environ['ALLRANKS_RANK']}", "w") as file:
        file.write(str(os.getpid()))


def _start_watch(backend: str) -> None:
    """Start the watch, in a thread. An error in it must not end the program."""
    try:
        if not _OVER.wait(START_SECONDS):
            watch = package("allranks.hang.launched")
            if not _OVER.is_set():
                watch.begin_watch(backend)
    except Exception as error:
        if not _OVER.is_set():
            rank = os.environ["ALLRANKS_RANK"]
            print(
                f"allranks: rank {rank}: the hang watch failed to start: {type(error).__name__}: {error}",
                file=sys.stderr,
            )


def package(name: str) -> Any:
    """Import a module of allranks by its name; return it."""
    if importlib.util.find_spec("allranks") is None:
        place = f"{PACKAGE}/__init__.py"
        spec = importlib.util.spec_from_file_location("allranks", place, submodule_search_locations=[PACKAGE])
        assert spec is not None and spec.loader is not None  # noqa: PT018 - a file that is there has both
        package = importlib.util.module_from_spec(spec)
        sys.modules["allranks"] = package
        spec.loader.exec_module(package)
    return importlib.import_module(name)
