"""Options of other launchers are answered; completion knows every option; other systems are told what is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import allranks
from allranks.cli import main as command_line
from allranks.cli.run import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "the following arguments are required: -n/--ranks"),
        (["--nproc-per-node", "0", "train.py"], "expected a whole number of at least 1, found '0'"),
        (["-n", "2", "--nnodes", "3:2", "train.py"], "expected a number of hosts such as 4, or 2:4, found '3:2'"),
        (["-n", "2", "-r", "3", "train.py"], "no option -r: leave it out; --log-dir DIR keeps the output of each rank"),
        (
            ["-n", "2", "--local_addr=a", "train.py"],
            "no option --local_addr: leave it out; the other hosts",
        ),
        (
            ["-n", "2", "-t", "3", __file__],
            "--tee: give --log-dir DIR, too: it keeps the output of each rank",
        ),
        (["--num_machines=4", "-n", "2", "train.py"], "no option --num_machines: write --hosts 4."),
        (["-n", "2", "--hosts", "2", __file__], "nothing says which host is host 0. Give --coordinator HOST:PORT"),
        (["-n", "2", "--host-rank", "1", __file__], "nothing says how many hosts the job has. Give --hosts N."),
        (["-n", "2", "--hosts", "2", "--coordinator", "a:1", "--as", "slurm", __file__], "--as slurm is for one host"),
        (["-n", "auto", __file__], "auto: this host has no accelerator"),
        (["--timeout", "5", "-np", "2", "train.py"], "no option -np: write -n 2."),
        (["-n", "2", "--timout", "5", "train.py"], "no option --timout: did you mean --timeout?"),
        (["-n", "2", "--zyx", "train.py"], "no option --zyx."),
        (["-n", "2", "no-such-command", "--nproc-per-node", "2"], "no such command: no-such-command"),
        (["-n", "2", "--rest", "1", "nothing.py", "--nnodes", "2"], "no such script: nothing.py"),
    ],
)
def test_an_option_of_another_launcher_is_answered_by_ours(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What stands behind the script, or the command, is its own."""
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert says in capsys.readouterr().err


def test_a_command_for_torchrun_runs_as_it_is(tmp_path: Path) -> None:
    """It sees its role, and its output is in a file per rank."""
    script = tmp_path / "train.py"
    script.write_text("import os\nprint('role', os.environ['ROLE_NAME'])\n")
    words = ["--standalone", "--nproc_per_node=1", "--role=trainer", "--monitor_interval", "1", "-t", "3"]
    assert main([*words, "--log_dir", str(tmp_path / "logs"), str(script)]) == 0
    assert [path.read_text() for path in (tmp_path / "logs").rglob("*") if path.is_file()] == ["role trainer\n"]


def test_options_behind_a_script_that_refuses_them_are_pointed_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are the script's: nothing is said where it takes them, or fails otherwise."""
    (tmp_path / "train.py").write_text("import sys\nsys.exit(int(sys.argv[1]))")
    for code, said in (("2", 1), ("3", 0), ("0", 0)):
        assert main(["-n", "1", str(tmp_path / "train.py"), code, "--timeout=30", "--lr", "1"]) == int(code)
        told = "train.py was given --timeout=30: options of allranks run stand before the script"
        assert capfd.readouterr().err.count(told) == said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in ["preflight", "--rendezvous-timeout", "--write-baseline", "verify", "audit"])
    if shell == "bash":
        ask = f"{script}COMP_WORDS=(allranks run --hang-a); COMP_CWORD=2; _allranks; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
        assert done.stdout == "--hang-after\n"


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_another_system_has_the_core_and_check_and_is_told_that_run_needs_linux(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    with pytest.raises(SystemExit, match="2"):
        main(["-n", "2", "train.py"])
    said = capsys.readouterr().err
    assert f"allranks run needs Linux, and this is {system}" in said
    assert "Start the ranks by torchrun, where allranks.init() joins them" in said
    assert allranks.SimulatedWorld(2).run(lambda world: world.max(world.rank)).values() == (1, 1)
    (tmp_path / "train.py").write_text("import torch.distributed as dist\ndist.barrier()\n")
    monkeypatch.chdir(tmp_path)
    assert command_line.main(["check", "train.py", "--no-cache"]) in (0, 1)
