"""The command on programs of the standard library alone: what it prints, its exit codes, perturbed runs."""

from __future__ import annotations

import json
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import denied
import pytest

from allranks import testing
from allranks.errors import BadArgument
from allranks.findings import Finding
from allranks.launch.job import Script
from allranks.launch.result import JobResult
from allranks.rehearse import rehearsal
from allranks.rehearse.plan import Plan
from allranks.rehearse.rehearsal import rehearse as run
from allranks.rehearse.run import Interrupted, Run
from allranks.rehearse.run_scenario import Outcome, hang_patience
from allranks.rehearse.scenario import Delays, scenarios
from allranks.rehearse.trace import merged

RACE = """\
import os, sys, time

rank = int(os.environ["RANK"])
if rank == 0:
    with open("settings", "w") as file:
        file.write("x")
else:
    time.sleep(0.2)
    with open("settings") as file:
        file.read()
"""


def rehearse(folder: Path, text: str, *options: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(text)
    command = [sys.executable, "-m", "allranks", "rehearse", "-n", str(ranks), *options, "train.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_a_race_is_told_in_the_quiet_run_and_made_to_fail_by_a_seed(tmp_path: Path) -> None:
    """On a busy machine, rank 0 may come so late that the race fails in the quiet run, or rank 1 so late that it never
    does: then it is run again."""
    options = ("--only", "quiet,perturbed", "--seeds", "1", "--output-format", "json", "--output-file", "o")
    for _ in range(5):
        done = rehearse(tmp_path, RACE, *options)
        if "FAILED" not in done.stderr.splitlines()[0] and "FileNotFoundError" in (tmp_path / "o").read_text():
            break
    assert done.returncode == 1, done.stderr
    (one,) = json.loads((tmp_path / "o").read_text())["findings"]
    assert (one["code"], one["path"], one["line"]) == ("AR405", "train.py", 9)
    texts = [note["text"] for note in one["notes"]]
    assert any("seen in the rehearsal 'quiet'" in text for text in texts)
    assert any("with the file changes of rank 0 300 ms late" in text and "FileNotFoundError" in text for text in texts)
    quiet, perturbed = done.stderr.splitlines()[:2]
    assert "rehearsal 1 of 2, quiet" in quiet
    assert quiet.endswith("1 new finding: ok")
    assert "perturbed, seed 1" in perturbed
    assert "FAILED" in perturbed


INTERRUPTED = """\
import os, signal

rank = int(os.environ["RANK"])
with open("both", "w") as file:
    file.write(str(rank))
open(f"ready-{rank}", "w").close()
signal.pause()
"""


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)]
)
def test_a_signal_ends_the_rehearsal_with_what_is_known(tmp_path: Path, signum: int, code: int) -> None:
    """The ranks have ended, and the files are as before."""
    (tmp_path / "train.py").write_text(INTERRUPTED)
    command = [sys.executable, "-m", "allranks", "rehearse", "-n", "2", "--only", "quiet,hosts", "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not all((tmp_path / f"ready-{rank}").exists() for rank in (0, 1)):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signum)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "error[AR102] ranks 0-1 write both, and nothing orders them" in out
    assert re.search(r"^hosts +not seen +the rehearsal was interrupted$", out, re.MULTILINE)
    assert err.endswith("1 new finding: interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_signal_in_a_run_that_looks_for_a_cause_ends_the_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Run(JobResult(1, ()), merged(2, []), "")

    def again(*_: object) -> list[Finding]:
        raise Interrupted(signal.SIGINT, failed)

    monkeypatch.setattr(rehearsal, "run_scenario", lambda *_: Outcome(failed, [], ""))
    monkeypatch.setattr(rehearsal, "run_again", again)
    done = run(Plan(Script("train.py"), 2, names=("quiet", "hosts")), progress=lambda _: None)
    assert done.interrupted == signal.SIGINT
    assert [(one.name, why) for one, why in done.skipped] == [("hosts", "the rehearsal was interrupted")]


def test_a_program_without_a_fault_ends_with_0(tmp_path: Path) -> None:
    done = rehearse(tmp_path, "print('x')", "--only", "quiet")
    assert done.returncode == 0
    assert done.stdout.endswith("No findings in 1 run of 2 ranks, 0 steps at most.\n")
    assert re.search(r"^resume +not seen +the scenario did not run$", done.stdout, re.MULTILINE)
    assert re.search(r"^collectives +not seen +the ranks never waited for each other$", done.stdout, re.MULTILINE)


def test_a_program_that_fails_by_itself_ends_with_3_and_its_output(tmp_path: Path) -> None:
    done = rehearse(tmp_path, "raise ValueError('of its own')", "--only", "quiet")
    assert done.returncode == 3
    assert "the program fails by itself: rank" in done.stderr
    assert "  | ValueError: of its own" in done.stderr
    assert done.stderr.endswith("next: allranks rehearse --suggest train.py proposes arguments for it\n")


def without(call: int, folder: Path, *options: str) -> str:
    """Return what a rehearsal of RACE prints if a system call is denied. It finds the race all the same."""
    if platform.machine() != "x86_64":
        pytest.skip("the numbers of the calls are those of x86-64")
    (folder / "train.py").write_text(RACE)
    command = [sys.executable, denied.__file__, str(call), sys.executable, "-m", "allranks", "rehearse", "-n", "2"]
    done = subprocess.run(
        [*command, *options, "train.py"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "error[AR405] rank 1 reads settings" in done.stdout
    return " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (denied.SECCOMP, "[Errno 1] seccomp: Operation not permitted"),
        pytest.param(denied.PROCESS_VM_READV, "this container does not allow process_vm_readv", marks=pytest.mark.soak),
    ],
)
def test_where_the_kernel_cannot_watch_python_is_watched_and_nothing_is_run_twice(
    call: int, why: str, tmp_path: Path
) -> None:
    """Files could not be restored before a second run. The race is seen all the same: Python made the calls."""
    text = without(call, tmp_path, "--only", "quiet,perturbed,hosts", "--seeds", "1")
    assert f"only Python's own file calls are seen, and files are not restored, so one run is made: {why}" in text
    assert "runs not seen perturbed, seed 1; hosts: files are not restored here (see probes)" in text


@pytest.mark.soak
def test_where_namespaces_are_denied_the_hosts_share_their_folders(tmp_path: Path) -> None:
    text = without(denied.UNSHARE, tmp_path, "--only", "hosts")
    assert "hosts not seen the hosts shared all folders: Operation not permitted: mount namespaces" in text


LINES = """\
import os


def never():
    os.remove("other")


def rank_0():
    return 1


if os.environ["RANK"] == "0":
    rank_0()
for _ in range(3):
    os.getpid()
"""


def test_every_line_of_the_quiet_run_is_recorded_if_requested(tmp_path: Path) -> None:
    done = rehearse(
        tmp_path,
        LINES,
        "--only",
        "quiet",
        "--lines",
        "--output-format",
        "json",
        "--output-file",
        "o",
        "--trace",
        "t.json",
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "o").read_text())["rehearsal"]
    assert facts["lines"] == {"complete": True, "files": {"train.py": {"1": [9, 13], "2": [1, 4, 8, 12, 14, 15]}}}
    assert (facts["command"], facts["ranks"], facts["root"]) == ("train.py", 2, str(tmp_path))
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


INLINE = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(torch.ones(64, 2)):
    model(batch).sum().backward()
    optimizer.step()
print("saved")
"""


@pytest.mark.soak
def test_a_loader_that_lives_only_for_its_loop_ends_before_the_program(tmp_path: Path) -> None:
    """What comes after the loop, such as a last save, is part of the run."""
    pytest.importorskip("torch")
    options = ("--only", "quiet", "--steps", "3", "--lines", "--output-format", "json", "--output-file", "o")
    rehearse(tmp_path, INLINE, *options, ranks=1)
    facts = json.loads((tmp_path / "o").read_text())["rehearsal"]
    assert facts["runs"][0]["steps"] == 3
    assert 9 in facts["lines"]["files"]["train.py"]["1"]


LOCAL = """\
import os

rank = int(os.environ["RANK"])
if rank == 0:
    open("cache/new", "w").close()
    open("cache/tmp", "w").close()
    os.replace("cache/tmp", "cache/old")
print(rank, sorted(os.listdir("cache")), open("cache/old").read())
"""


def test_each_pretended_host_has_its_copy_of_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are renamed over those of the folder, which a mounted file would refuse; the folder itself is as before."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(LOCAL)
    Path("cache").mkdir()
    Path("cache/old").write_text("x")
    plan = Plan(Script("train.py"), 2, names=("hosts",), local=(str(tmp_path / "cache"),))
    done = run(plan, progress=lambda _: None)
    if done.unseen["hosts"]:
        pytest.skip(done.unseen["hosts"])
    output = done.runs[0][1].output
    assert "0 ['new', 'old']" in output
    assert "1 ['old'] x" in output
    assert {path.name: path.read_text() for path in Path("cache").iterdir()} == {"old": "x"}


def test_a_test_can_rehearse_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(RACE)
    report = testing.rehearse("train.py", ranks=2, only=["quiet"])
    assert [(one.code, one.place.line) for one in report.errors] == [("AR405", 9)]
    assert not report.failed
    assert "AR405 rank 1 reads settings" in str(report)
    line = '    with open("settings") as file:\n'
    Path("train.py").write_text(RACE.replace(line, f"{line[:-1]}  # allranks: ignore[AR405] it slept\n"))
    assert testing.rehearse("train.py", ranks=2, only=["quiet"]).findings == ()
    with pytest.raises(BadArgument, match=r"no script 'other\.py'"):
        testing.rehearse("other.py")
    with pytest.raises(BadArgument, match="found 'quick'"):
        testing.rehearse("train.py", only=["quick"])


def test_the_same_seed_does_the_same() -> None:
    calls = [(rank, operation, line) for rank in (0, 1, 2) for operation in ("create", "read") for line in range(6)]
    for seed in range(1, 7):
        first, second = Delays(3, seed), Delays(3, seed)
        assert [first.seconds(*call) for call in calls] == [second.seconds(*call) for call in calls]
        assert any(Delays(3, seed).seconds(*call) for call in calls)


def test_delays_of_one_line_and_of_one_rank_are_bounded() -> None:
    delays = Delays(2, 1)
    assert sum(delays.seconds(0, "create", 1) > 0 for _ in range(100)) == 4
    assert sum(delays.seconds(0, "create", line) for line in range(2, 1000)) < 7


def test_ranks_that_share_cores_get_more_time_before_they_are_held_to_hang() -> None:
    assert hang_patience(2, load=0.5, cores=2) == hang_patience(64, load=0.0, cores=64) == 15
    assert hang_patience(8, load=0.0, cores=2) == 30
    assert hang_patience(8, load=9.0, cores=2) == 60


def test_scenarios_come_in_their_order() -> None:
    names = [(one.name, one.seed) for one in scenarios(["quiet", "perturbed", "hosts"], seeds=2, first_seed=7)]
    assert names == [("quiet", 0), ("perturbed", 7), ("perturbed", 8), ("hosts", 0)]
