"""The batch script of Slurm, and what is read from what its programs print. Pure: no Slurm is needed."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess

import pytest

from allranks.engines.base import JobRow, Submission
from allranks.engines.kinds import slurm

JOB = Submission(
    name="train",
    ranks=8,
    hosts=4,
    least=4,
    options=("-n", "8", "--log-dir", "my logs"),
    command=("train.py", "--name", "it's $HOME"),
    folder="/home/me/a b",
    environment={"TOKEN": 'a"b $c'},
)
LAUNCHER = ("/venv/bin/python", "-m", "allranks")


def directives(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


def step(text: str) -> list[str]:
    return next(shlex.split(line) for line in text.splitlines() if line.startswith("srun "))


def test_a_script_starts_one_launcher_on_each_host() -> None:
    text = slurm.script(JOB, slurm.Profile(partition="gpu", gpus_per_node=8), launcher=LAUNCHER)
    assert {"--nodes=4", "--ntasks-per-node=1", "--partition=gpu", "--gpus-per-node=8"} <= set(directives(text))
    assert '"--chdir=/home/me/a b"' in directives(text)
    words = step(text)
    assert words[:2] == ["srun", "--ntasks-per-node=1"]
    assert words[words.index(LAUNCHER[0]) :] == [*LAUNCHER, "run", *JOB.options, *JOB.command]


def test_ranks_of_a_host_do_not_share_one_cpu() -> None:
    """Slurm binds a task to as many CPUs as are requested; ``srun`` does not take the number from ``sbatch``."""
    text = slurm.script(JOB, slurm.Profile(), launcher=LAUNCHER)
    assert "--cpus-per-task=8" in directives(text)
    assert "--cpus-per-task=8" in step(text)
    assert "--cpus-per-task" not in slurm.script(JOB, slurm.Profile(exclusive=True), launcher=LAUNCHER)
    auto = slurm.script(dataclasses.replace(JOB, ranks=None), slurm.Profile(gpus_per_node=4), launcher=LAUNCHER)
    assert "--cpus-per-task=4" in directives(auto)


def test_the_signal_goes_to_the_step_and_slurm_leaves_the_end_of_a_failed_job_to_the_launchers() -> None:
    text = slurm.script(JOB, slurm.Profile(signal_before=300), launcher=LAUNCHER)
    assert "--signal=TERM@300" in directives(text)
    assert {"--kill-on-bad-exit=0", "--wait=60"} <= set(step(text))
    assert "--signal" not in slurm.script(JOB, slurm.Profile(signal_before=0), launcher=LAUNCHER)


def test_an_elastic_job_takes_the_nodes_that_there_are() -> None:
    text = slurm.script(dataclasses.replace(JOB, least=2), slurm.Profile(), launcher=LAUNCHER)
    assert "--nodes=2-4" in directives(text)
    words = step(text)
    assert words[words.index("--hosts") + 1] == "2:4"


@pytest.mark.parametrize(
    ("requeue", "restarts", "code", "cancelled", "requeued"),
    [
        (2, "", 143, False, True),
        (2, "1", 143, False, True),
        (2, "2", 143, False, False),
        (2, "", 1, False, False),
        (2, "", 143, True, False),
        (0, "", 143, False, False),
    ],
)
def test_a_job_that_saved_at_a_preemption_is_requeued(
    requeue: int, restarts: str, code: int, cancelled: bool, requeued: bool
) -> None:
    """Run by a shell in which the programs of Slurm are functions. Not after ``scancel``, and not without end."""
    text = slurm.script(JOB, slurm.Profile(requeue=requeue), launcher=LAUNCHER)
    text = text.replace("trap", "cd() { :; }\ntrap")
    kill = "kill -TERM $$; " if cancelled else ""
    fakes = f"srun() {{ {kill}return {code}; }}\nscontrol() {{ echo scontrol $*; }}\n"
    environment = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": restarts, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", fakes + text], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout == ("scontrol requeue 7\n" if requeued else "")


SHOWN = """JobId=7 JobName=train
   JobState={state} Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code}
   Command=(null)
   WorkDir=/home/me/a b
   StdOut=/home/me/a b/out-7.log
"""


@pytest.mark.parametrize(
    ("state", "code", "means"),
    [
        ("RUNNING", "0:0", None),
        ("PENDING", "143:0", None),
        ("COMPLETING", "3:0", None),
        ("COMPLETED", "0:0", 0),
        ("FAILED", "3:0", 3),
        ("FAILED", "0:9", 137),
        ("CANCELLED", "143:0", 143),
        ("CANCELLED", "0:0", 1),
        ("TIMEOUT", "0:15", 124),
        ("NODE_FAIL", "0:0", 1),
        ("CANCELLED+", "0:15", 143),
    ],
)
def test_the_exit_code_of_a_job(state: str, code: str, means: int | None) -> None:
    fields = slurm.fields(SHOWN.format(state=state, code=code))
    assert fields["StdOut"] == "/home/me/a b/out-7.log"
    assert slurm.exit_code(fields) == means


def test_only_jobs_of_submit_are_listed() -> None:
    text = "7|allranks|4|RUNNING|None|a|b\n8|(null)|1|RUNNING|None|other\n9|allranks|1|PENDING|Resources|c\n"
    assert slurm.rows(text) == [
        JobRow("slurm:7", "a|b", "RUNNING", "4"),
        JobRow("slurm:9", "c", "PENDING (Resources)", "1"),
    ]
