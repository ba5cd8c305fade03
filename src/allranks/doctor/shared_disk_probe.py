"""Run as a script: find whether a folder is the same on two hosts; JSON lines.

``hold FOLDER TOKEN`` leaves a marker there and a lock on it, until its stdin ends; then it tells whose answers have
come, and takes all away. ``find FOLDER TOKEN NAME SECONDS`` looks for the marker, answers, and tries the lock.
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


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def put(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def hold(here: Path, token: str) -> None:
    here.mkdir()
    try:
        put(here / "lock", "")
        with (here / "lock").open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locks = True
            except OSError:
                locks = False
            put(here / "marker", token)
            say(ready=True, locks=locks)
            sys.stdin.read()
        say(answers=[path.name.removeprefix("answer-") for path in here.glob("answer-*") if path.read_text() == token])
    finally:
        shutil.rmtree(here, ignore_errors=True)


def find(here: Path, token: str, name: str, seconds: float) -> None:
    began = time.monotonic()
    while not there(here, token):
        if time.monotonic() - began > seconds:
            say(seconds=None)
            return
        time.sleep(_NAP)
    say(seconds=time.monotonic() - began)
    try:
        put(here / f"answer-{name}", token)
    except OSError as error:
        say(mute=error.strerror)
        return
    with (here / "lock").open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(lock=True)
        except OSError:
            return
        else:
            say(lock=False)


def there(here: Path, token: str) -> bool:
    try:
        return (here / "marker").read_text() == token
    except OSError:
        return False


def main(words: list[str]) -> int:
    what, folder, token, *more = words
    here = Path(folder) / f".allranks-doctor-{token}"
    say(doing=what)
    try:
        if what == "hold":
            hold(here, token)
        else:
            find(here, token, more[0], float(more[1]))
    except OSError as error:
        say(trouble=error.strerror or str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
