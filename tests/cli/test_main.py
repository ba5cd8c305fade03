"""What the command line says to who calls it wrong, and with which exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.cli.main import main


def test_alone_it_shows_its_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "run         run a script as N ranks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("walk", "no command 'walk': there are check, ckpt, completion, data, doctor, explain, jobs, preflight"),
        ("chek src", "no command 'chek': did you mean `allranks check src`?"),
        ("train.py --steps 3", "write `allranks run -n 4 train.py --steps 3`"),
        ("ckpt verfy runs/a", "no command 'verfy': did you mean `allranks ckpt verify runs/a`?"),
        ("--verbose", "unrecognized arguments: --verbose"),
        ("run train.py", "the following arguments are required: -n/--ranks"),
        ("run -n 0 train.py", "expected a whole number of at least 1, found '0'"),
        ("run -n 2 --timeout soon train.py", "expected a number of seconds, found 'soon'"),
        ("run -n 2", "nothing to run: name a script (train.py), a module (-m package.train), or a command"),
        ("run -n 2 train.py", "no such script: train.py (in "),
        ("run -n 2 -- no-such-command", "no such command: no-such-command (a script's name ends in .py)"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_says_what_is_wrong(
    words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any process is started."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "shows"),
    [
        ("help", "usage: allranks [-h] [--version] command ..."),
        ("help run", "usage: allranks run -n N [options]"),
        ("help ckpt", "verify"),
        ("help ckpt verify", "usage: allranks ckpt verify"),
        ("ckpt help verify", "usage: allranks ckpt verify"),
        ("--help", "run         run a script as N ranks"),
    ],
)
def test_help_is_a_command_too(words: str, shows: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 0
    assert shows in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("allranks 0.")


def test_a_reader_that_has_enough_ends_the_command_without_a_traceback() -> None:
    """`allranks explain --all | head -1`: the exit code is that of a program that SIGPIPE ended."""
    command = [sys.executable, "-m", "allranks", "explain", "--all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == (b"", 141)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_a_launcher_that_has_started_nothing_is_reported(
    signum: signal.Signals, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """While it imports what it needs, and after the job. The handlers of the program are put back."""
    monkeypatch.setattr("allranks.cli.main._run", lambda _: os.kill(os.getpid(), signum))
    before = signal.signal(signum, signal.SIG_DFL)  # a library that another test imported may have set its own
    try:
        with pytest.raises(SystemExit) as ended:
            main(["run", "-n", "2", "train.py"])
        assert ended.value.code == 128 + signum
        assert capfd.readouterr().err == f"allranks: {signum.name} received: no rank runs.\n"
        assert signal.getsignal(signum) is signal.SIG_DFL
    finally:
        signal.signal(signum, before)
