"""The command lines of ``allranks submit`` and ``allranks jobs``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allranks.cli import jobs, run, submit
from allranks.cli.engine_profile import profile_of
from allranks.cli.main import main
from allranks.cli.option_values import takes_value
from allranks.cli.submit import CommandLine, Hosts, hosts_of, split
from allranks.engines import detect
from allranks.engines.base import EngineFailed, JobRow, Submission
from allranks.engines.frames import has_rank, is_stdout, with_host
from allranks.settings import ConfigWrong


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    return tmp_path


class Recorded:
    """A client that starts nothing. ``submitted`` are the jobs, ``cancelled`` the references."""

    def __init__(self) -> None:
        self.submitted: list[Submission] = []
        self.cancelled: list[str] = []

    def preview(self, job: Submission) -> str:
        key = job.environment["ALLRANKS_JOB_KEY"]
        return f"would run {shlex.join(job.run(('allranks',)))} with {key}"

    def submit(self, job: Submission, report: Callable[[str], None]) -> None:
        self.submitted.append(job)
        report("7")

    def jobs(self) -> list[JobRow]:
        return [JobRow("slurm:7", "train", "RUNNING", "4")]

    def logs(self, reference: str, *, follow: bool) -> Iterator[str]:
        yield from ["[0-1] step 1", "(1)   warning", "[0]   step 2", f"end of {reference} {follow}"]

    def wait(self, reference: str) -> int:
        if reference != "7":
            raise EngineFailed(f"slurm: job {reference} is not known.")
        return 3

    def cancel(self, reference: str) -> None:
        self.cancelled.append(reference)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    client = Recorded()
    monkeypatch.setattr(detect, "client_of", lambda *_: client)
    return client


def submitted(client: Recorded, words: str) -> Submission:
    assert main(["submit", "--on", "slurm", *shlex.split(words)]) == 0
    return client.submitted[-1]


@pytest.mark.parametrize(
    ("words", "ours", "theirs", "command"),
    [
        ("--on s -n 2 a.py -n 3 --on x", "--on s", "-n 2", "a.py -n 3 --on x"),
        ("-n 2 --on=s --guard a.py", "--on=s", "-n 2 --guard", "a.py"),
        ("--log-d x -n2 --dry-run -m p.train --on y", "--dry-run", "--log-d x -n2", "-m p.train --on y"),
        ("--timeout=5 --env A=b -- uv run a.py", "--env A=b", "--timeout=5", "-- uv run a.py"),
        ("--hosts 2:4 --restarts 3 -q a.py", "--hosts 2:4", "--restarts 3 -q", "a.py"),
    ],
)
def test_the_options_of_submit_and_of_run_are_split(words: str, ours: str, theirs: str, command: str) -> None:
    """The options of run go to every host as they were written; those behind the script are the script's."""
    of_submit, of_run = takes_value(submit.parser()), takes_value(run.parser())
    found = split(words.split(), of_submit, of_run)
    assert found == CommandLine(tuple(ours.split()), tuple(theirs.split()), tuple(command.split()))


def test_a_job_has_what_the_command_line_says(client: Recorded, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    job = submitted(client, "--hosts 2:4 --env TOKEN --env A=b=c -n 8 --grace 50 train.py --lr 1")
    assert (job.least, job.hosts, job.ranks, job.name) == (2, 4, 8, "train")
    key = job.environment["ALLRANKS_JOB_KEY"]
    assert job.environment == {"ALLRANKS_JOB_KEY": key, "TOKEN": "secret", "A": "b=c"}
    assert key != submitted(client, "-n 8 train.py").environment["ALLRANKS_JOB_KEY"]
    assert submitted(client, "-n auto train.py").ranks is None
    as_torchrun = submitted(client, "--nnodes 2:4 --nproc_per_node 8 train.py")
    assert (as_torchrun.least, as_torchrun.hosts, as_torchrun.ranks) == (2, 4, 8)
    assert job.run(("allranks",)) == ("allranks", "run", *["-n", "8", "--grace", "50", "train.py", "--lr", "1"])
    assert (job.folder, job.grace) == (str(folder), 50.0)


@pytest.mark.parametrize(
    ("command", "name"),
    [("train.py", "train"), ("-m package.train_all", "train-all"), ("-- uv run ./a/My.py", "my"), ("-- ls", "ls")],
)
def test_a_job_is_named_after_its_program(client: Recorded, command: str, name: str) -> None:
    assert submitted(client, f"-n 2 {command}").name == name
    assert submitted(client, f"--name other -n 2 {command}").name == "other"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--hosts 0 -n 2 train.py", "--hosts: expected a number (4), a range (2:4), found '0'."),
        ("--hosts 4:2 -n 2 train.py", "found '4:2'"),
        ("--hosts a,b -n 2 train.py", "found 'a,b'"),
        ("--env A-B=3 -n 2 train.py", "--env: expected NAME or NAME=VALUE, found 'A-B=3'."),
        ("--env NOT_SET -n 2 train.py", "--env NOT_SET: this variable is not set here. Write --env NOT_SET=VALUE."),
        ("--name My_Job -n 2 train.py", "found 'My_Job'. Write --name my-job."),
    ],
)
def test_a_wrong_option_is_refused(client: Recorded, words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "--on", "slurm", *words.split()]) == 2
    assert says in capsys.readouterr().err
    assert client.submitted == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-n 2", "nothing to run: name a script"),
        ("train.py", "the following arguments are required: -n/--ranks"),
        ("-n 0 train.py", "expected a whole number of at least 1, found '0'"),
        ("-n 2 other.py", "no such script: other.py (in "),
        ("-n 2 --dry train.py", "unrecognized arguments: --dry"),
        ("-n 2 --host-rank 1 train.py", "--host-rank: leave it out: submit sets it on each host"),
        ("-n 2 --coordinator a:1 train.py", "--coordinator: leave it out"),
    ],
)
def test_a_wrong_command_line_ends_with_2(
    client: Recorded, words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found here, before the job waits in a queue."""
    with pytest.raises(SystemExit) as end:
        main(["submit", "--on", "slurm", *words.split()])
    assert end.value.code == 2
    assert says in capsys.readouterr().err
    assert client.submitted == []


def test_a_dry_run_starts_nothing(client: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "--on", "slurm", "--dry-run", "-n", "2", "train.py", "a"]) == 0
    assert capsys.readouterr().out == "would run allranks run -n 2 train.py a with a new secret of each job\n"
    assert client.submitted == []


@pytest.mark.usefixtures("client")
def test_submit_prints_the_id_and_with_attach_has_the_output_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "--on", "slurm", "-n", "2", "train.py"]) == 0
    assert capsys.readouterr().out == "slurm:7\n"
    assert main(["submit", "--on", "slurm", "--attach", "-n", "2", "train.py"]) == 3
    out, err = capsys.readouterr()
    assert out == "slurm:7\n[0-1] step 1\n[0]   step 2\n"
    assert err == "(1)   warning\nend of 7 True\n"


def test_the_jobs_commands_reach_the_client(client: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "ls", "--on", "slurm"]) == 0
    assert capsys.readouterr().out == "id       name   state    hosts\nslurm:7  train  RUNNING  4\n"
    assert main(["jobs", "ls", "--on", "slurm", "--json"]) == 0
    row = {"id": "slurm:7", "name": "train", "state": "RUNNING", "hosts": "4"}
    assert json.loads(capsys.readouterr().out) == [row]
    assert main(["jobs", "logs", "slurm:7", "--rank", "1"]) == 0
    assert capsys.readouterr().out == "[0-1] step 1\n(1)   warning\n"
    assert main(["jobs", "wait", "slurm:7"]) == 3
    assert main(["jobs", "cancel", "slurm:7"]) == 0
    assert client.cancelled == ["7"]


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("wait 7", "'7' is no id of a job: expected KIND:..., with a kind of "),
        ("wait slrm:7", "'slrm:7' is no id of a job"),
        ("wait slurm:8", "slurm: job 8 is not known."),
        ("ls", "no profile of an engine was found. Name a kind: allranks jobs ls --on slurm."),
    ],
)
def test_a_job_that_is_not_known_ends_with_2(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", *words.split()]) == 2
    assert says in capsys.readouterr().err


def test_ctrl_c_leaves_an_attached_job_running(client: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: str) -> int:
        raise KeyboardInterrupt

    client.wait = interrupted  # type: ignore[method-assign]
    assert jobs.attach(client, "slurm:7") == 130
    assert "To end it: allranks jobs cancel slurm:7" in capsys.readouterr().err


def test_a_program_that_is_missing_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert main(["submit", "--on", "slurm", "-n", "2", "train.py"]) == 2
    assert "slurm: the program 'sbatch' is not in PATH. Run this on a login node" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "ranks", "is_out"),
    [
        ("[0-3] a", {0, 1, 2, 3}, True),
        ("(2)   a", {2}, False),
        ("[0, 2-3] a", {0, 2, 3}, True),
        ("me@node-2.lan: (3) a", {3}, False),
        ("h1: [3] a", {3}, True),
        ("[n09.lan 8-15] a", set(), True),
        ("(n-9 0, 3) a", {0, 3}, False),
        ("(head, rank=0, pid=17) (1-2) a", {1, 2}, False),
        ("first failure: rank 1", set(), False),
        ("[info] a", set(), False),
        ("", set(), False),
    ],
)
def test_the_frame_of_a_line_says_which_ranks_wrote_it(line: str, ranks: set[int], is_out: bool) -> None:
    assert {rank for rank in range(5) if has_rank(line, rank)} == ranks
    assert is_stdout(line) is is_out


def hosts(folder: Path, words: str, names: str = '["a", "b", "c"]') -> Hosts:
    (folder / "pyproject.toml").write_text(f'[tool.allranks.engines.lab]\nkind = "ssh"\nhosts = {names}\n')
    return hosts_of(words or None, profile_of("lab", folder))


@pytest.mark.parametrize(
    ("words", "least", "names"),
    [("", 3, ("a", "b", "c")), ("2", 2, ("a", "b")), ("2:3", 2, ("a", "b", "c")), ("x,me@y", 2, ("x", "me@y"))],
)
def test_the_hosts_of_ssh_have_names(folder: Path, words: str, least: int, names: tuple[str, ...]) -> None:
    found = hosts(folder, words)
    assert (found.least, found.most, found.profile.options.hosts) == (least, len(names), names)


def test_more_hosts_than_the_profile_names_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigWrong, match=r"--hosts 4: the profile 'lab' names 3\. Write --hosts a,b or hosts ="):
        hosts(folder, "4")
    with pytest.raises(ConfigWrong, match="--hosts 1: no host is named"):
        hosts(folder, "", "[]")


def test_a_line_is_framed_by_its_host_once() -> None:
    assert with_host("n1", "[n1 0-3] a", of=2) == "[n1 0-3] a"
    assert with_host("n1", "[0-3] a", of=2) == "n1: [0-3] a"
    assert with_host("n1", "first failure: rank 3", of=2) == "n1: first failure: rank 3"
    assert with_host("n1", "first failure: rank 3", of=1) == "first failure: rank 3"


def test_a_job_that_is_not_found_without_a_profile_names_the_profiles(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(detect, "client_of", lambda *_: Recorded())
    (folder / "pyproject.toml").write_text('[tool.allranks.engines.big]\nkind = "slurm"\n')
    assert main(["jobs", "wait", "slurm:8"]) == 2
    note = "no profile was used: if the job was submitted with one, add --on NAME. Of kind slurm: big."
    assert note in capsys.readouterr().err
    assert main(["jobs", "wait", "slurm:8", "--on", "big"]) == 2
    assert note not in capsys.readouterr().err
