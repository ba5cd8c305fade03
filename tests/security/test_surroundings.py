"""A command in odd surroundings ends with a sentence and an exit code. Secrets are masked, leftovers removed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.cli.leftovers import remove_leftovers
from allranks.errors import AllranksError
from allranks.hang import endpoint, query
from allranks.launch import control_socket
from allranks.launch.control_socket import ControlSocket, abandoned_folders
from allranks.launch.fork_server_messages import Exited
from allranks.launch.hosts.facts import command_of
from allranks.launch.job import Job, Script
from allranks.launch.rank_processes import RankProcess
from allranks.readiness.variables import decisive_variables, other_variables
from allranks.rehearse.plan import command_line
from allranks.secret_values import is_secret_name, mask_arguments, mask_secrets, mask_variables

ALLRANKS = f"{sys.executable} -m allranks"
NO_FOLDER = "allranks: the working folder does not exist any more. Change to another folder.\n"
FULL = "allranks: the output cannot be written: No space left on device. Free space on that disk.\n"
CLOSED = "allranks: standard output is closed: what belongs there is lost.\n"


def run_in_shell(command: str, folder: Path) -> tuple[int, str]:
    """Run a shell command; return its exit code, and what it wrote on stderr."""
    done = subprocess.run(["bash", "-c", command], cwd=folder, stderr=subprocess.PIPE, text=True, timeout=100)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("completion bash > /dev/full", (2, FULL)),
        ("run --help > /dev/full", (2, FULL)),
        *(
            pytest.param(f"{command} > /dev/full", (2, FULL), marks=pytest.mark.soak)
            for command in ("--help", "--version", "ckpt ls --help", "help submit", "explain --help", "ckpt help")
        ),
        pytest.param("completion bash >&-", (0, CLOSED), marks=pytest.mark.soak),
        pytest.param("run -n 2 -q hello.py >&-", (0, CLOSED), marks=pytest.mark.soak),
        pytest.param("run -n 2 hello.py <&- >&- 2>&-", (0, ""), marks=pytest.mark.soak),
    ],
)
def test_output_that_cannot_be_written_is_a_sentence(command: str, expected: tuple[int, str], tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("print('hello')\n")
    assert run_in_shell(f"{ALLRANKS} {command}", tmp_path) == expected


@pytest.mark.soak
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("explain hello.py > /dev/full", 2, FULL),
        ("check hello.py > /dev/full", 2, FULL),
        ("rehearse -n 2 hello.py > /dev/full", 2, FULL),
        ("run -n 2 hello.py > /dev/full", 141, "allranks: the launcher cannot write its output any more: [Errno 28]"),
        ("run -n 2 hello.py 2> /dev/full", 141, ""),
        ("doctor job >&-", 2, CLOSED + "allranks: no job runs here"),
        ("ckpt ls /nowhere 2>&-", 2, ""),
        ("run -n 2 --log-dir /dev/null hello.py", 2, "allranks: log folder '/dev/null' cannot be used:"),
        ("run -n 2 hello.py | true; exit ${PIPESTATUS[0]}", 141, ""),
    ],
)
def test_more_output_that_cannot_be_written(command: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("print('hello')\n")
    found, err = run_in_shell(f"{ALLRANKS} {command}", tmp_path)
    assert (found, "Traceback" in err) == (code, False), err
    assert said in err


@pytest.mark.parametrize("command", ["run -n 2 x.py", pytest.param("check", marks=pytest.mark.soak)])
def test_a_working_folder_that_was_removed_is_a_sentence(command: str, tmp_path: Path) -> None:
    found = run_in_shell(f"mkdir gone; cd gone; rmdir ../gone; {sys.executable} -P -m allranks {command}", tmp_path)
    assert found == (2, NO_FOLDER)


@pytest.mark.soak
@pytest.mark.parametrize("files", [5, 8, 16, 30, 36, 40, 42, 60])
def test_few_descriptors_are_a_sentence_or_enough(files: int, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("print('hello')\n")
    for command in ("run -n 2", "rehearse -n 2", "check"):
        code, err = run_in_shell(f"ulimit -n {files}; {ALLRANKS} {command} hello.py > /dev/null", tmp_path)
        assert "Traceback" not in err, err
        assert code == 0 or "cannot start on this host" in err or "Raise the limit" in err, err


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_without_a_folder_for_the_socket_no_job_starts(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(control_socket, "_parent_folder", lambda: str(tmp_path / folder))
    with pytest.raises(AllranksError, match=r"cannot be made: .* Set TMPDIR to a folder that you can write to\."):
        ControlSocket()
    assert abandoned_folders() == []


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files of launchers."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(control_socket, "_parent_folder", lambda: folder)
        yield Path(folder)


def leave_behind(folder: Path) -> None:
    """Make a launcher's folder as a killed one leaves it."""
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(folder / "control"))
    (folder / "control.failed").touch()
    (folder / "control.watch").mkdir()
    (folder / "control.watch" / "key").write_text("value")


def test_only_what_killed_launchers_of_this_user_left_is_removed(temporary: Path, tmp_path: Path) -> None:
    """Not: the folders of launchers that live, of other programs or users, and links and what they lead to."""
    dead = temporary / "allranks-abcdefgh"
    leave_behind(dead)
    (dead / "link").symlink_to(tmp_path)
    (tmp_path / "mine").touch()
    others = [
        temporary / name for name in ("allranks-export-x1", "allranks-1234567", "other-abcdefgh", "allranks-a.b.c.d")
    ]
    for other in others:
        leave_behind(other)
    (temporary / "allranks-11111111").mkdir(mode=0o700)  # as one that is just made
    (temporary / "allranks-22222222").symlink_to(others[0])
    leave_behind(temporary / "allranks-33333333")
    (temporary / "allranks-33333333").chmod(0o755)
    with ControlSocket() as living:
        remove_leftovers()
        assert os.path.exists(living.path)
        assert not dead.exists()
        assert (tmp_path / "mine").exists()
        assert all((other / "control.watch" / "key").exists() for other in others)
        names = {path.name for path in temporary.iterdir()} - {Path(living.path).parent.name}
    assert names == {*(other.name for other in others), *(f"allranks-{n * 8}" for n in "123")}


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is played with setpriv")
def test_the_folder_of_another_user_stays(temporary: Path) -> None:
    temporary.chmod(0o777)
    folder = temporary / "allranks-abcdefgh"
    bind = "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).bind(sys.argv[1])"
    as_other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    subprocess.run([*as_other, "mkdir", "-m", "700", folder], check=True)
    subprocess.run([*as_other, "/usr/bin/python3", "-c", bind, folder / "control"], check=True)
    remove_leftovers()
    assert (folder / "control").exists()


@pytest.mark.soak
def test_the_next_launcher_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time; print('here', flush=True); time.sleep(600)\n")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        run = [sys.executable, "-m", "allranks", "run", "-q", "-n", "2"]
        environment = {**os.environ, "TMPDIR": folder}
        with subprocess.Popen([*run, "train.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as launcher:
            assert launcher.stdout is not None
            launcher.stdout.readline()
            launcher.send_signal(signal.SIGKILL)
        assert len(os.listdir(folder)) == 1
        (tmp_path / "train.py").write_text("")
        subprocess.run([*run, "train.py"], cwd=tmp_path, env=environment, check=True)
        assert os.listdir(folder) == []


@pytest.mark.parametrize("kind", ["open to others", "file", "link", "dangling link"])
def test_a_folder_of_sockets_that_others_could_have_made_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = tmp_path / "allranks-0"
    if kind == "open to others":
        at.mkdir()
        at.chmod(0o755)
    elif kind == "file":
        at.touch()
    else:
        at.symlink_to(tmp_path if kind == "link" else tmp_path / "nothing")
    monkeypatch.setattr(endpoint, "Path", lambda _: at)
    with pytest.raises(AllranksError, match="is not a folder that only this user can open"):
        endpoint.socket_folder()


def test_a_rank_that_could_not_be_started_has_lived_for_no_time() -> None:
    """Its end has a time, and its start has none."""
    end = Exited(0, 1, 1_800_000_000.0, 0)
    assert RankProcess(ended=end).seconds == 0.0
    assert RankProcess(1_800_000_000.0 - 2.5, 12, end).seconds == 2.5


SECRET = "hunter2"


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "WANDB_API_KEY", "--api-key", "--apiKey", "db.password", "MY_SECRET", "PGPASSWORD", "MYSQL_PWD"),
        *("AWS_SECRET_ACCESS_KEY", "ALLRANKS_STORE_KEY", "ALLRANKS_JOB_KEY", "--hf_token", "sshPassphrase", "token"),
        *("ACCESSTOKEN", "SECRETKEY", "HF_TOKENS", "DB_PASS", "--pwd", "--auth", "CREDS", "KAGGLE_KEY", "WANDB_KEY"),
        *(
            "AZURE_STORAGE_KEY",
            "--key",
            "--pass",
            "--ssh-key",
            "SSHKEY",
            "PRIVATEKEY",
            "GHTOKEN",
            "slacktoken",
            "DBPASS",
        ),
        *("SLACK_WEBHOOK", "WEBHOOK_URL"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)
    assert SECRET not in mask_secrets(f"python train.py {name}={SECRET} --lr 3")
    assert mask_variables({name: SECRET})[name].startswith("*** (")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "pad_token",
            "--eos-token",
            "max_tokens",
            "tokenizer",
            "TOKENIZERS_PARALLELISM",
            "num_key_value_heads",
            "key",
        ),
        *("monkey", "keyboard", "--token-file", "PASSWORD_FILE", "AWS_ACCESS_KEY_ID", "PWD", "OLDPWD", "eos_token_id"),
        *(
            "forward_pass",
            "auth_type",
            "bypass",
            "pass",
            "padtoken",
            "--key-dim",
            "--sort-key",
            "--num-keys",
            "compass",
        ),
    ],
)
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret_name(name)
    assert mask_secrets(f"train.py {name}=value") == f"train.py {name}=value"


@pytest.mark.parametrize(
    "text",
    [
        f"--token {SECRET}",
        f"--password '{SECRET} and more'",
        f's3://user:{SECRET}@host/bucket and postgres://u:{SECRET}@h/d "',
        f"curl -H 'Authorization: Bearer {SECRET}{SECRET}'",
        f"{{'token': '{SECRET}'}}",
        f"trainer.logger.api_key={SECRET}",
        f"https://{SECRET}{SECRET}{SECRET}@github.com/x.git",
        f"hf_{SECRET}{SECRET}{SECRET}",
        f'{{"token":"{SECRET}"}}',
        f"--env=NAME_TOKEN={SECRET}",
        f"https://h/x?a=1&access_token={SECRET}",
        f"https://h/x?sv=2020&sig={SECRET}%3D",
        f"https://h/x?X-Amz-Signature={SECRET}&x=1",
        f"AIza{SECRET}{SECRET}{SECRET} nvapi-{SECRET}{SECRET}{SECRET} sk_live_{SECRET}{SECRET}",
        f"https://hooks.slack.com/services/T0/B0/{SECRET} https://hooks.zapier.com/hooks/catch/1/{SECRET}",
        f"https://discord.com/api/webhooks/123/{SECRET} https://chat.googleapis.com/v1/messages?key={SECRET}",
        f"https://a.webhook.office.com/webhookb2/a@b/{SECRET} https://outlook.office.com/webhook/a@b/{SECRET}",
        f"https://api.telegram.org/bot123:{SECRET}/send",
        f"npm_{SECRET}{SECRET}{SECRET} pypi-AgEI{SECRET}{SECRET}",
    ],
)
def test_secrets_in_text_are_masked(text: str) -> None:
    assert SECRET not in mask_secrets(text)
    assert "***" in mask_secrets(text)


@pytest.mark.parametrize(
    "part",
    ["a-", "a.", "sk-", "eyJ-", "a=", "a:", "x://", "'", "a='", "bearer ", "--token ", "https://a/", "https://hooks."],
)
def test_long_texts_are_masked_in_linear_time(part: str) -> None:
    """In a quadratic time, this would take a minute."""
    began = time.process_time()
    mask_secrets(f"--{part * 50_000}=")
    assert time.process_time() - began < 10


def test_words_and_addresses_without_secrets_stay() -> None:
    words = ["train.py", "--lr", "3", "--token", "--verbose", "ssh://user@host/x", "https://host:80/x", "a=b"]
    assert mask_arguments(words) == words
    assert mask_variables({"HF_HOME": "/a b", "HF_TOKEN": ""}) == {"HF_HOME": "/a b", "HF_TOKEN": ""}


def test_values_of_secrets_differ_where_they_are_compared() -> None:
    one, other = ({**other_variables({"HF_TOKEN": text}), **decisive_variables({})} for text in (SECRET, "other"))
    assert one != other
    assert SECRET not in str(one)


def test_command_lines_that_are_shown_have_no_secrets() -> None:
    target = Script("train.py", ("--api-key", SECRET, f"--hf-token={SECRET}", "--lr", "3"))
    shown: list[Any] = [command_of(Job(target, 2)), command_line(target)]
    assert all(text.endswith("train.py --api-key '***' '--hf-token=***' --lr 3") for text in shown)


def test_a_job_whose_ranks_have_not_joined_is_found(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command of its launcher, without secrets."""
    monkeypatch.setattr(endpoint, "known_addresses", list)
    with pytest.raises(AllranksError, match=r"^no job runs here\."):
        query.choose_job(None)
    leave_behind(temporary / "allranks-abcdefgh")
    program = "from allranks.launch.control_socket import ControlSocket as C\nwith C(): print(flush=True); input()"
    command = [sys.executable, "-c", program, "--token=abc"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        with pytest.raises(AllranksError, match=r"has joined the others yet\. 1 launcher: ") as caught:
            query.choose_job(None)
        with pytest.raises(AllranksError, match="no job called a1 runs here"):
            query.choose_job("a1")
        launcher.communicate(b"\n")
    assert f"process {launcher.pid}: {sys.executable} -c " in str(caught.value)
    assert "--token=***. Ranks answer from" in str(caught.value)
    with pytest.raises(AllranksError, match=r"^no job runs here\."):
        query.choose_job(None)
