"""The scripts for a host that is reached by SSH, run by a shell here; and the commands that run them there."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allranks.engines.base import EngineFailed, JobRow, Submission
from allranks.engines.host_script import HostJob, common_exit_code, exit_codes, list_jobs, rows
from allranks.engines.kinds import ssh

PROGRAM = "import sys; print('line', flush=True); print(repr(sys.stdin.read())); sys.exit(int(sys.argv[1]))"
WAITS = "import time; print('started', flush=True); time.sleep(600)"


@pytest.fixture
def job(tmp_path: Path) -> HostJob:
    return HostJob("train-1", "train-1@a,b", shlex.quote(str(tmp_path / "all jobs")))


def shell(script: str, given: str = "") -> tuple[int, str]:
    done = subprocess.run(
        ["sh", "-c", script], input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
    )
    return done.returncode, done.stdout


def start(job: HostJob, folder: Path, program: str, *words: str, attached: bool) -> str:
    command = [sys.executable, "-c", program, *words]
    return job.start(command, folder=str(folder), lines=["export A=1"], attached=attached)


def test_an_attached_job_shows_its_output_and_ends_as_it_does(job: HostJob, tmp_path: Path) -> None:
    """Its standard input is that of the connection."""
    assert shell(start(job, tmp_path, PROGRAM, "3", attached=True), "given") == (3, "line\n'given'\n")
    assert shell(job.wait()) == (0, "exit 3\n")
    assert shell(job.logs(follow=True)) == (0, "line\n'given'\n")
    assert shell(list_jobs(job.jobs)) == (0, "exit 3|train-1@a,b\n")


def test_a_detached_job_goes_on_and_is_cancelled(job: HostJob, tmp_path: Path) -> None:
    assert shell(start(job, tmp_path, WAITS, attached=False)) == (0, "")
    assert shell(list_jobs(job.jobs)) == (0, "running|train-1@a,b\n")
    deadline = time.monotonic() + 60
    while "started" not in shell(job.logs(follow=False, label=True))[1]:
        assert time.monotonic() < deadline
    assert shell(job.cancel()) == (0, "")
    assert shell(job.wait()) == (0, "exit 143\n")
    assert shell(job.logs(follow=True))[1].startswith("started\n")


def test_a_process_that_has_the_number_of_a_launcher_is_not_the_launcher(job: HostJob, tmp_path: Path) -> None:
    """After a restart of the host, say: nothing is signalled, and the job counts as lost."""
    assert shell(start(job, tmp_path, PROGRAM, "0", attached=True))[0] == 0
    (folder,) = (tmp_path / "all jobs" / "train-1").iterdir()
    (folder / "exit").unlink()
    with subprocess.Popen(["sleep", "600"]) as other:
        (folder / "pid").write_text(f"{other.pid} 17\n")
        assert shell(job.cancel()) == (0, "")
        assert shell(list_jobs(job.jobs)) == (0, "lost|train-1@a,b\n")
        assert other.poll() is None
        other.kill()


def test_a_job_that_a_host_does_not_have_is_an_error(job: HostJob) -> None:
    code, said = shell(job.wait())
    assert code == 2
    assert "no job train-1" in said
    assert shell(list_jobs(job.jobs)) == (0, "")


def test_the_states_of_several_hosts_make_one_row() -> None:
    text = "running|train-1@a,b\nexit 3|other-2@a\nexit 0|train-1@a,b\nWelcome | to node a@b\n"
    assert rows("ssh", text) == [
        JobRow("ssh:train-1@a,b", "train-1", "running", "2"),
        JobRow("ssh:other-2@a", "other-2", "exit 3", "1"),
    ]
    assert exit_codes("Welcome\nexit 0\nexit 3\nexit x\n") == [0, 3]
    assert common_exit_code([0, 3, 143]) == 3
    assert common_exit_code([0, 0]) == 0


JOB = Submission("train", 8, 2, 2, ("-n", "8"), ("train.py", "a b"), "/home/me/code", {"TOKEN": "it's"})
PROFILE = ssh.Profile(hosts=("me@a", "b"), options=("-p", "2222"))
ENVIRON = {"JAX_PLATFORMS": "cpu", "AWS_SECRET": "x", "PYTHONPATH": "src"}


def test_each_host_has_its_rank_and_the_same_coordinator() -> None:
    scripts = ssh.scripts(JOB, PROFILE, launcher=("allranks",), token="00002a", environ=ENVIRON)
    assert list(scripts) == ["me@a", "b"]
    for rank, script in enumerate(scripts.values()):
        run = (
            f"allranks run --hosts 2 --host-rank {rank} --coordinator a:20042 --end-on-stdin-close -n 8 train.py 'a b'"
        )
        assert run in script
        assert "cd /home/me/code" in script
        assert "export JAX_PLATFORMS=cpu\nexport PYTHONPATH=src\n" in script
        assert "AWS_SECRET" not in script


def test_values_of_variables_are_not_on_the_command_line() -> None:
    """Where every user of the host would see them: the script is on standard input, and is read to its last byte."""
    script = "echo é; cat\n"
    command = ssh.connect(PROFILE, "b", script)
    assert command[0] == "ssh"
    assert command[-3:-1] == ("--", "b")
    assert shell(command[-1], script + "the rest") == (0, "é\nthe rest")


def test_the_folder_is_copied_without_what_git_ignores() -> None:
    command = ssh.copy(JOB, PROFILE, "b")
    assert command[-2:] == ("/home/me/code/", "b:/home/me/code/")
    assert "--filter=:- .gitignore" in command
    assert "-p 2222" in command[command.index("-e") + 1]


@pytest.mark.parametrize("reference", ["train-1", "a b@h", "$(reboot)@h"])
def test_what_is_no_reference_is_refused(reference: str) -> None:
    """It would be part of a script."""
    with pytest.raises(EngineFailed, match=r"is no job: expected ssh:NAME@HOST,HOST\."):
        ssh.parse(reference, PROFILE)


@pytest.mark.parametrize("hosts", [("a", "b", "b"), ("b", "root@b")])
def test_a_host_that_is_named_twice_is_refused(hosts: tuple[str, ...]) -> None:
    profile = ssh.Profile(hosts=hosts)
    with pytest.raises(EngineFailed, match="names a host twice: b;"):
        ssh.scripts(JOB, profile, launcher=("allranks",), token="00002a", environ=ENVIRON)
