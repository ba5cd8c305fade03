"""What clients of engines are made of: the programs that they run, and the files that they follow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from allranks.engines.base import EngineFailed
from allranks.engines.clients import tail
from allranks.engines.clients.programs import output


def test_a_program_that_fails_is_reported_in_its_own_words() -> None:
    fails = [sys.executable, "-c", "import sys; sys.exit(sys.stdin.read() + ': no such partition')"]
    with pytest.raises(EngineFailed, match=r"slurm: .*python.* failed: gpu: no such partition\."):
        output(fails, kind="slurm", given="gpu", install="")
    with pytest.raises(EngineFailed, match="exit code 3"):
        output([sys.executable, "-c", "raise SystemExit(3)"], kind="slurm", install="")


def test_a_program_that_is_missing_is_reported() -> None:
    with pytest.raises(EngineFailed, match=r"slurm: the program 'no-such-program' is not in PATH\. Log in\."):
        output(["no-such-program"], kind="slurm", install="Log in.")


def test_a_file_is_followed_until_its_job_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a file that does not exist yet; what a job wrote just before its end; and a last line without its end."""
    monkeypatch.setattr(tail, "_POLL", 0.001)
    file = tmp_path / "out.log"
    written = iter(["", "one\ntw", "o\n", "three\nfo", None])
    ended = False

    def has_ended() -> bool:
        nonlocal ended
        if (text := next(written)) is None:
            ended = True
            return ended
        with file.open("a") as out:
            out.write(text)
        return False

    lines = tail.lines(file, follow=True, has_ended=has_ended)
    assert list(lines) == ["one", "two", "three", "fo"]
    assert ended
    assert list(tail.lines(file, follow=False, has_ended=has_ended)) == ["one", "two", "three", "fo"]
    assert list(tail.lines(tmp_path / "none", follow=False, has_ended=has_ended)) == []
