"""``--log-dir``: one file per rank, raw, and no run loses its files to the next."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest

from allranks.launch.console import Console
from allranks.launch.logs import LogDirUnusable, RankLogs
from allranks.launch.placement import Placement


def write_run(folder: Path, size: int, text: bytes) -> RankLogs:
    logs = RankLogs(folder, Placement(("a",), (size,)))
    for rank in range(size):
        logs.write(rank, text)
    logs.close()
    return logs


def test_a_file_holds_what_its_rank_wrote_byte_for_byte(tmp_path: Path) -> None:
    """Both streams in order of arrival, codes and broken UTF-8 included, at once; the folder is made."""
    folder = tmp_path / "a" / "logs"
    shown = Console(11, out=io.BytesIO(), color=False, live=False, log_dir=folder)
    shown.feed(3, "out", b"\x1b[31mred\r\xff", 0.0)
    shown.feed(3, "err", b"half", 0.0)
    assert (folder / "rank-03.log").read_bytes() == b"\x1b[31mred\r\xffhalf"
    assert sorted(path.name for path in folder.iterdir()) == [f"rank-{rank:02}.log" for rank in range(11)]
    shown.close()


def test_the_files_of_an_earlier_run_are_moved_and_said(tmp_path: Path) -> None:
    """All of them, twice in the same second too; other files stay where they are."""
    (tmp_path / "rank-notes.log").write_text("mine")
    for text, size in ((b"first", 4), (b"second", 2), (b"third", 2)):
        out = io.BytesIO()
        shown = Console(size, out=out, color=False, live=False, log_dir=tmp_path)
        for rank in range(size):
            shown.feed(rank, "out", text, 0.0)
        for path in tmp_path.glob("rank-?.log"):
            os.utime(path, (1e9, 1e9))
        shown.close()
    assert {path.name for path in tmp_path.glob("rank*")} == {"rank-0.log", "rank-1.log", "rank-notes.log"}
    assert (tmp_path / "rank-0.log").read_bytes() == b"third"
    earlier = sorted(tmp_path.glob("earlier-*"))
    assert [re.sub(r"\d{8}-\d{6}", "T", path.name) for path in earlier] == ["earlier-T", "earlier-T-2"]
    assert [len(list(path.iterdir())) for path in earlier] == [4, 2]
    assert (earlier[0] / "rank-3.log").read_bytes() == b"first"
    assert out.getvalue().startswith(f"log files of an earlier run moved to {earlier[1]}\n".encode())


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Before any rank starts."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LogDirUnusable, match=re.escape(str(tmp_path / "file"))):
        RankLogs(tmp_path / "file", Placement(("a",), (2,)))


def test_a_full_disk_ends_one_file_and_not_the_job(tmp_path: Path) -> None:
    """It is said once, and the other ranks' files go on."""
    out = io.BytesIO()
    shown = Console(2, out=out, color=False, live=False, log_dir=tmp_path)
    assert shown._logs
    shown._logs._files[0].close()
    shown._logs._files[0] = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    for _ in range(2):
        shown.feed(0, "out", b"zero\n", 0.0)
        shown.feed(1, "out", b"one\n", 0.0)
    shown.close()
    said = out.getvalue().decode()
    assert (
        said.count(
            "rank-0.log ends here, because it cannot be written: [Errno 28] No space left on device. The job continues."
        )
        == 1
    )
    assert said.count("zero") == 2
    assert (tmp_path / "rank-1.log").read_bytes() == b"one\none\n"
