"""stdout is the ranks' own; what allranks has to say, and their stderr, goes to stderr; one rank has standard input."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from jobs import PATIENCE, allranks, command, environment, write


def run(*words: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), cwd=cwd, env=environment(), input=stdin, capture_output=True, text=True, timeout=PATIENCE
    )


@pytest.mark.parametrize("words", [(), ("--quiet",)])
def test_stdout_is_what_ranks_write_there(tmp_path: Path, words: tuple[str, ...]) -> None:
    write(tmp_path, "import sys\nprint('result')\nprint('progress', file=sys.stderr)\n")
    done = run("-n", "2", *words, "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "[0-1] result\n")
    first, *ours = done.stderr.splitlines()
    assert first == "(0-1) progress"
    assert not ours if words else ours[-1].startswith("exit code 0")


def test_a_quiet_job_that_fails_says_why_and_no_more(tmp_path: Path) -> None:
    write(tmp_path, "raise SystemExit('no data')\n")
    done = run("-q", "-n", "2", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "first failure: rank " in done.stderr
    assert "peak memory" not in done.stderr
    assert "stopping" not in done.stderr


@pytest.mark.parametrize("start", [(), ("--no-zygote",)])
def test_one_rank_has_the_standard_input(tmp_path: Path, start: tuple[str, ...]) -> None:
    write(tmp_path, "secret = 42\nbreakpoint()\nprint('read', input())\n")
    done = run("-n", "1", "-q", *start, "train.py", cwd=tmp_path, stdin="p secret\nc\na line\n")
    assert done.returncode == 0, done.stderr
    assert "(Pdb) 42\n" in done.stdout
    assert done.stdout.endswith("read a line\n")


@pytest.mark.parametrize("reads", ["input()", "breakpoint()", "list(__import__('sys').stdin)"])
def test_several_ranks_that_read_it_get_the_reason(tmp_path: Path, reads: str) -> None:
    """Without us each gets an end of file, or one takes the lines of the others."""
    write(tmp_path, f"{reads}\n")
    done = allranks("-n", "2", "train.py", cwd=tmp_path)
    assert done.code == 1
    assert "NoStandardInput: read standard input: " in done.out
    assert "a job of 2 ranks has none" in done.out
    assert "Run with -n 1" in done.out


def test_a_command_may_pipe_into_its_python(tmp_path: Path) -> None:
    write(tmp_path, "print('read', input())\n")
    done = allranks("-n", "2", "--", "sh", "-c", "echo a line | python train.py", cwd=tmp_path)
    assert done.code == 0, done.out
    assert "read a line" in done.out
