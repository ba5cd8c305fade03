"""``allranks submit`` to hosts with a real sshd: environment, output, exit codes, and no launcher that remains."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import network_hosts
import pytest

ALLRANKS = [sys.executable, "-m", "allranks"]
LAUNCHER = Path(__file__).with_name("programs") / "one_host.py"
TEXT = 'it\'s "$HOME" é'


@pytest.fixture
def folder(tmp_path: Path, hosts: network_hosts.Hosts, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder on a shared disk, with the profiles ``lab`` and ``detached``."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    lab = f"""
kind = "ssh"
hosts = {list(hosts.names)}
options = ["-F", "{hosts.folder / "ssh_config"}"]
jobs-folder = "{tmp_path / "the jobs"}"
launcher = "{sys.executable} {LAUNCHER}"
"""
    text = f"[tool.allranks.engines.lab]{lab}[tool.allranks.engines.detached]{lab}detach = true\n"
    (folder / "pyproject.toml").write_text(text)
    monkeypatch.chdir(folder)
    return folder


def launchers(folder: Path) -> list[str]:
    return sorted(path.name.removeprefix("running-") for path in folder.glob("running-*"))


def await_launchers(folder: Path, names: list[str]) -> None:
    deadline = time.monotonic() + 60
    while launchers(folder) != names:
        assert time.monotonic() < deadline, f"expected launchers on {names}, found {launchers(folder)}"
        time.sleep(0.05)


def submit(hosts: network_hosts.Hosts, words: str, *, on: str = "lab") -> subprocess.CompletedProcess[str]:
    return hosts.run("h0", [*ALLRANKS, "submit", "--on", on, "-n", "2", "--env", f"TEXT={TEXT}", *words.split()])


@pytest.mark.usefixtures("folder")
def test_a_job_has_its_environment_folder_output_and_exit_code(hosts: network_hosts.Hosts) -> None:
    done = submit(hosts, "train.py 0 3")
    _, *lines = done.stdout.splitlines()
    expected = [f"h{rank}: [{2 * rank}-{2 * rank + 1}] {TEXT} h0 4 a folder" for rank in range(4)]
    expected += [f"h{rank}: ({2 * rank}) done" for rank in range(4)]
    assert [line for line in expected if lines.count(line) != 1] == [], done.stdout  # a login shell may print, too
    assert done.returncode == 3


def test_launchers_end_when_submit_is_killed(hosts: network_hosts.Hosts, folder: Path) -> None:
    """Without the switch on standard input, SIGKILL of ``ssh`` would leave them running."""
    with hosts.on("h0", [*ALLRANKS, "submit", "--on", "lab", "-n", "2", "train.py", "600", "0"]) as process:
        await_launchers(folder, list(hosts.names))
        hosts.run("h0", ["pkill", "-KILL", "-f", "allranks submit --on lab"])
        process.wait()
    await_launchers(folder, [])


@pytest.mark.soak
def test_ctrl_c_ends_the_launchers_with_their_grace(hosts: network_hosts.Hosts, folder: Path) -> None:
    command = [*ALLRANKS, "submit", "--on", "lab", "-n", "2", "train.py", "600", "0"]
    with hosts.on("h0", command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        await_launchers(folder, list(hosts.names))
        hosts.run("h0", ["pkill", "-INT", "-f", "allranks submit --on lab"])
        assert process.stdout is not None
        printed = process.stdout.read()
    assert all(f"{host}: allranks: SIGTERM on {host}" in printed for host in hosts.names)
    await_launchers(folder, [])


@pytest.mark.soak
def test_a_detached_job_is_followed_and_cancelled_from_elsewhere(hosts: network_hosts.Hosts, folder: Path) -> None:
    started = submit(hosts, "train.py 600 0", on="detached")
    assert started.returncode == 0
    job_id = started.stdout.strip()
    await_launchers(folder, list(hosts.names))

    def jobs(*words: str) -> subprocess.CompletedProcess[str]:
        return hosts.run("h3", [*ALLRANKS, "jobs", *words, "--on", "detached"])

    assert jobs("ls").stdout.splitlines()[1].split()[2] == "running"
    assert jobs("logs", job_id, "--rank", "3").stdout == f"h1: [2-3] {TEXT} h0 4 a folder\n"
    assert jobs("cancel", job_id).returncode == 0
    assert jobs("wait", job_id).returncode == 143
    assert launchers(folder) == []
    attached = jobs("attach", job_id)
    assert attached.returncode == 143
    assert "h2: allranks: SIGTERM on h2" in attached.stdout


@pytest.mark.soak
def test_a_host_that_cannot_be_reached_ends_the_job_on_the_others(hosts: network_hosts.Hosts, folder: Path) -> None:
    done = submit(hosts, "--hosts h1,nowhere train.py 600 0")
    assert done.returncode == 2
    assert "nowhere: ssh: Could not resolve hostname nowhere" in done.stdout
    assert "the connection to host nowhere failed; the job was ended." in done.stdout
    await_launchers(folder, [])


@pytest.mark.soak
def test_a_cut_host_ends_the_job(hosts: network_hosts.Hosts, folder: Path) -> None:
    command = [*ALLRANKS, "submit", "--on", "lab", "-n", "2", "train.py", "600", "0"]
    with hosts.on("h0", command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        await_launchers(folder, list(hosts.names))
        hosts.cut("h2")
        assert process.stdout is not None
        printed = process.stdout.read()
    assert "the connection to host h2 failed; the job was ended." in printed
    await_launchers(folder, ["h2"])  # it is the launcher there that notices that it is cut off
