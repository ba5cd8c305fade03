"""Write the files of ``--log-dir``: the output of each rank, byte for byte, in one file per rank."""

from __future__ import annotations

import time
from pathlib import Path
from typing import BinaryIO

from allranks.errors import AllranksError
from allranks.launch.placement import Placement


class LogDirUnusable(AllranksError):
    """Raised when the folder for the log files cannot be made or written."""


class RankLogs:
    """One log file per rank of this host, in ``folder``, which is created if it is missing.

    The names are ``rank-0.log``, or in a job of 16 ranks ``rank-00.log``. They are the same in every run, so that
    ``tail -f`` and scripts know them. A file has both streams of a rank, in order of arrival.

    Nothing is overwritten: all files of an earlier run move to ``folder/earlier-<time of its last line>/``
    (``moved_to``), so that files of two runs are never mixed. Hosts may share the folder: each moves the files of its
    own ranks, and those of ranks that the job does not have.
    """

    def __init__(self, folder: Path, placement: Placement) -> None:
        self.moved_to: Path | None = None
        digits = len(str(placement.size - 1))
        self.paths = {rank: folder / f"rank-{rank:0{digits}}.log" for rank in placement.ranks}
        self._files: dict[int, BinaryIO] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.moved_to = _set_aside(folder, placement)
            for rank, path in self.paths.items():
                self._files[rank] = path.open("xb", buffering=0)
        except OSError as error:
            self.close()
            raise LogDirUnusable(
                f"log folder {str(folder)!r} cannot be used: {error}.",
                remedy="Give --log-dir a folder you can write to.",
            ) from error

    def write(self, rank: int, data: bytes) -> None:
        """Append ``data`` to the rank's file.

        Raises OSError once per rank: then its file ends, and the other files continue.
        """
        file = self._files.get(rank)
        rest = memoryview(data)
        try:
            while file and rest:
                rest = rest[file.write(rest) :]
        except OSError:
            self._files.pop(rank).close()
            raise

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


def _set_aside(folder: Path, placement: Placement) -> Path | None:
    """Move the log files in ``folder`` into a new folder, and return its path.

    Return None if there are no log files.
    """
    others = set(range(placement.size)) - set(placement.ranks)
    old = sorted(path for path in folder.glob("rank-*.log") if _rank_of(path) not in {None, *others})
    if not old:
        return None
    last_line = max(path.stat().st_mtime for path in old)
    name = f"earlier-{time.strftime('%Y%m%d-%H%M%S', time.localtime(last_line))}"
    name += f"-{placement.name}" if len(placement.hosts) > 1 else ""
    there = folder / name
    count = 1
    while there.exists():
        count += 1
        there = folder / f"{name}-{count}"
    there.mkdir()
    for path in old:
        path.rename(there / path.name)
    return there


def _rank_of(path: Path) -> int | None:
    number = path.stem.removeprefix("rank-")
    return int(number) if number.isdecimal() else None
