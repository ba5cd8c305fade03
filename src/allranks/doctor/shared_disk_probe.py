"""Test whether a folder is shared between hosts. Run as a script; it prints JSON lines.

``hold FOLDER TOKEN`` writes a marker there and locks it, until its stdin ends. Then it prints the names of the hosts
that have answered, and removes all files. ``find FOLDER TOKEN NAME SECONDS`` looks for the marker, writes an answer as
NAME, and tries the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from pathlib import Path

_NAP = 0.05


def print_json(**words: object) -> None:
    print(json.dumps(words), flush=True)


def write_marker(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def hold_marker(folder: Path, token: str) -> None:
    folder.mkdir()
    try:
        write_marker(folder / "lock", "")
        with (folder / "lock").open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locks = True
            except OSError:
                locks = False
            write_marker(folder / "marker", token)
            print_json(ready=True, locks=locks)
            sys.stdin.read()
        print_json(
            answers=[path.name.removeprefix("answer-") for path in folder.glob("answer-*") if path.read_text() == token]
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_marker_file(folder: Path, token: str, name: str, seconds: float) -> None:
    began = time.monotonic()
    while not has_marker(folder, token):
        if time.monotonic() - began > seconds:
            print_json(seconds=None)
            return
        time.sleep(_NAP)
    print_json(seconds=time.monotonic() - began)
    try:
        write_marker(folder / f"answer-{name}", token)
    except OSError as error:
        print_json(mute=error.strerror)
        return
    with (folder / "lock").open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_json(lock=True)
        except OSError:
            return
        else:
            print_json(lock=False)


def has_marker(folder: Path, token: str) -> bool:
    try:
        return (folder / "marker").read_text() == token
    except OSError:
        return False


def main(arguments: list[str]) -> int:
    what, parent, token, *more = arguments
    folder = Path(parent) / f".allranks-doctor-{token}"
    print_json(doing=what)
    try:
        if what == "hold":
            hold_marker(folder, token)
        else:
            find_marker_file(folder, token, more[0], float(more[1]))
    except OSError as error:
        print_json(trouble=error.strerror or str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
