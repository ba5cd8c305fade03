"""What libraries print on every rank though nothing has happened."""

from __future__ import annotations

import io
from pathlib import Path

from allranks.launch.chatter import without_chatter
from allranks.launch.console import Console

CONNECTED = b"[Gloo] Rank 3 is connected to 7 peer ranks. Expected number of connected peer ranks is : 7"


def test_a_line_that_tells_of_trouble_is_no_chatter() -> None:
    """All peers are there: chatter. One is missing, or somebody quotes the line: not."""
    short = CONNECTED.replace(b"to 7", b"to 6")
    quoted = b"hint: " + CONNECTED
    assert without_chatter([b"one", CONNECTED, short, quoted, b"", CONNECTED + b"1"]) == [
        b"one",
        short,
        quoted,
        b"",
        CONNECTED + b"1",
    ]


def test_two_devices_that_chatter_at_once_are_known_too() -> None:
    """Their lines come in pieces; what stands between them does not."""
    torn = [
        b"[Gloo] Rank 1[Gloo] Rank 0 is connected to  is connected to 77 peer ranks. ",
        b" peer ranks. Expected number of connected peer ranks is : 7",
    ]
    assert without_chatter([*torn, b"77", b"7 peer ranks. "]) == [b"77", b"7 peer ranks. "]


def test_chatter_is_kept_in_the_log_files_only(tmp_path: Path) -> None:
    """Not on the screen, not among a rank's last lines."""
    out = io.BytesIO()
    shown = Console(2, out=out, color=False, live=False, log_dir=tmp_path)
    shown.feed(1, "out", b"one\n" + CONNECTED[:20], 0.0)
    shown.feed(1, "out", CONNECTED[20:] + b"\ntwo\n", 0.1)
    shown.close()
    assert out.getvalue() == b"[1]   one\n[1]   two\n"
    assert shown.tail(1) == ("one", "two")
    assert (tmp_path / "rank-1.log").read_bytes() == b"one\n" + CONNECTED + b"\ntwo\n"
