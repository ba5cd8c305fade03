"""Several hosts: in simulation, and as real ranks that take themselves for two hosts, one with a disk of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness import clean_environ, free_port, run_commands, torchrun_environ

from allranks.cli import doctor
from allranks.doctor import host, together
from allranks.doctor.await_ranks import await_ranks
from allranks.doctor.devices import FrameworkDevices
from allranks.doctor.host import DoctorRequest, HostInfo, HostReport
from allranks.doctor.machine import GB, MachineMemory, memory_row
from allranks.doctor.ranks import single_process_row
from allranks.errors import BarrierTimeout
from allranks.report.readiness import Readiness
from allranks.world.base import World
from allranks.world.launcher_environment import Decision
from allranks.world.simulated import SimulatedWorld

LAUNCHER = single_process_row("simulated", [])


def texts(row: dict[str, Any]) -> list[str]:
    return [note["text"] for note in row["evidence"]]


def verdicts(found: Readiness) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {row.topic: (row.verdict, row.texts) for row in found.rows}


def test_of_forty_hosts_the_odd_ones_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One has another jax, one less memory, one a clock that is behind; all ranks return the same table."""

    def examine(request: DoctorRequest, here: Sequence[HostInfo], hosts: int) -> HostReport:
        del request
        assert (len(here), hosts) == (2, 40)
        name = here[0].host
        free = 0.5 if name == "host-31" else 60
        rows = (memory_row(MachineMemory(64 * GB, int(free * GB)), 1),)
        return HostReport(rows, {"jax": "0.9" if name == "host-7" else "0.10"}, {"cores": "8"}, ("127.0.0.1",))

    monkeypatch.setattr(host, "examine_host", examine)

    def program(world: World) -> Readiness:
        behind = 3.0 if world.host == "host-12" else 0.0
        request = DoctorRequest((), 0, 10.0, launched=True)
        return together.examine_all_hosts(world, request, LAUNCHER, wall_time=lambda: 1e9 + world.clock.now() - behind)

    outcome = SimulatedWorld(80, ranks_per_host=2, timeout=3000).run(program)
    assert not outcome.errors
    tables = outcome.values()
    assert all(table == tables[0] for table in tables)
    found = verdicts(tables[0])
    assert found["same versions"] == ("error", (found["same versions"][1][0],))
    assert "host host-7: 0.9" in found["same versions"][1][0]
    verdict, evidence = found["memory"]
    assert verdict == "warning"
    assert evidence[0].startswith("host host-31: 64 GB, 500 MB available")
    assert evidence[-1] == "not so on 39 of 40 hosts"
    verdict, evidence = found["clocks"]
    assert verdict == "warning"
    assert evidence[0].startswith("host host-12 is 3 s (+- ")
    assert evidence[0].endswith("behind host host-0, the farthest")
    verdict, evidence = found["reach"]
    assert verdict == "ok"
    assert evidence[0].startswith("240 ways between 40 hosts by TCP")


def in_a_namespace(where: Path) -> list[str]:
    """Return what starts a program for which ``where`` is a disk of its own; nothing where this user has no permission
    do so."""
    if os.geteuid() != 0:
        return []
    script = f'mount -t tmpfs own "{where}" && exec "$@"'
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    may = subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0
    return words if may else []


@pytest.mark.soak
@pytest.mark.needs("jax")
def test_two_hosts_of_real_ranks(tmp_path: Path) -> None:
    """They meet, and find what is shared and what is not; rank 0 alone prints, and has the exit code."""
    ours, own, fake = tmp_path / "ours", tmp_path / "own", tmp_path / "fake"
    for folder in (ours, own, fake):
        folder.mkdir()
    (fake / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    isolated = in_a_namespace(own)
    port = free_port()
    words = ["-m", "allranks", "doctor", "--json", "--backend", "jax", "--size", "8", "--timeout", "100"]
    command = [sys.executable, *words, "--path", str(ours), "--path", str(own), "--path", str(tmp_path / "none")]

    def environ(rank: int) -> dict[str, str]:
        found = clean_environ({**torchrun_environ(rank, 3, port), "ALLRANKS_HOST": "aab"[rank], "NCCL_SPEED": "fast"})
        return {**found, "PYTHONPATH": f"{fake}{os.pathsep}{found['PYTHONPATH']}"}

    commands = [([*(isolated if rank == 2 else []), *command], environ(rank)) for rank in range(3)]
    job = run_commands(commands)
    assert job.codes == [1, 0, 0], job
    assert job.ranks[1].out == job.ranks[2].out == "", job
    document = json.loads(job.ranks[0].out)
    assert (document["ready"], document["hosts"], document["ranks"]) == (False, ["a", "b"], 3)
    rows = {row["topic"]: row for row in document["readiness"]}
    label = {folder: f"...{str(folder)[-13:]}" for folder in (ours, own, tmp_path / "none")}

    def is_(topic: str, verdict: str, says: str) -> None:
        assert rows[topic]["verdict"] == verdict, (rows[topic], job)
        assert says in "\n".join(texts(rows[topic])), (rows[topic], job)

    is_("launcher", "ok", "torchrun says rank 0 of 3 (RANK, WORLD_SIZE); all ranks have joined through jax")
    is_("hosts", "warning", "2 hosts, 3 ranks: a: ranks 0-1; b: rank 2")
    is_("same versions", "ok", "equal on 2 hosts")
    is_("same hardware", "ok", "equal on 2 hosts")
    is_("jax", "ok", "sees 1 x cpu")
    is_("torch", "error", "`import torch` fails: ImportError: libcudart.so.12")
    is_("clocks", "ok", "host b is within")
    is_("store", "ok", "JAX's coordination service")
    is_("variables", "warning", "nothing reads NCCL_SPEED")
    is_(f"abilities {label[ours]}", "ok", "rename replaces a file whole")
    is_(f"shared {label[ours]}", "ok", "and its lock holds there")
    is_(f"files {label[tmp_path / 'none']}", "error", "No such file or directory")
    is_(f"shared {label[tmp_path / 'none']}", "not determined", "host a could leave nothing there")
    if isolated:
        is_(f"shared {label[own]}", "warning", "local: what host a wrote is not there on host b")
        is_(f"files {label[own]}", "warning", "host b:")
    if rows["interfaces"]["verdict"] == "ok":
        is_("reach", "ok", "2 ways between 2 hosts by TCP")
    assert os.listdir(ours) == os.listdir(own) == []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No framework is started, and no launcher has left a sign."""
    monkeypatch.setattr(host, "probe_framework", lambda name, patience: FrameworkDevices(name, "absent", patience))
    for name in set(os.environ) - set(clean_environ()):
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("quick")
def test_a_process_of_its_own_looks_at_its_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table, and as one document; nothing that is bad is exit code 0."""
    code = doctor.main(["--path", str(tmp_path), "--size", "4"])
    out = capsys.readouterr()
    lines = out.out.splitlines()
    assert lines[0].split() == ["readiness", "evidence"]
    assert code == (1 if " bad " in out.out else 0)
    assert max(map(len, lines)) <= 118
    assert re.search(r"^launcher +not seen +none started this process", out.out, re.MULTILINE)
    assert lines[-1].startswith("1 host, 1 rank: ")
    assert out.err == ""
    assert doctor.main(["--path", str(tmp_path / "none"), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert not document["ready"]
    assert all(texts(row) and all(texts(row)) for row in document["readiness"])


@pytest.mark.usefixtures("quick")
def test_a_batch_script_that_forgot_srun_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_PROCID", "0")
    assert doctor.main(["--path", str(tmp_path), "--size", "1", "--json"]) == 1
    row = json.loads(capsys.readouterr().out)["readiness"][0]
    assert (row["topic"], row["verdict"]) == ("launcher", "error")
    assert "was not started by srun" in texts(row)[0]
    assert "srun" in row["remedy"]


def called(ranks: Sequence[int], size: int, patience: float) -> dict[int, str]:
    """Have some ranks of a job come to its meeting point; what each of them is told."""
    address = f"127.0.0.1:{free_port()}"

    def come(rank: int) -> str:
        try:
            await_ranks(Decision("jax", rank, size, "torchrun", "asked for", address=address), timeout_seconds=patience)
        except BarrierTimeout as error:
            return str(error)
        return ""

    with ThreadPoolExecutor() as pool:
        return dict(zip(ranks, pool.map(come, ranks), strict=True))


def test_ranks_that_do_not_come_are_named_to_all_that_do() -> None:
    assert set(called(range(4), 4, 60.0).values()) == {""}
    told = called([0, 2], 4, 1.5)
    assert all("ranks 1, 3 did not come" in text for text in told.values()), told
    (alone,) = called([1], 2, 0.2).values()
    assert "rank 0 is not reached there: Connection refused" in alone


ALONE = """
import sys
from allranks.cli import doctor
from allranks.doctor import host
from allranks.doctor.devices import FrameworkDevices

host.probe_framework = lambda name, patience: FrameworkDevices(name, "absent", patience)
sys.exit(doctor.main(sys.argv[1:]))
"""


@pytest.mark.needs("jax")
def test_a_rank_that_is_left_alone_still_looks_at_its_machine(tmp_path: Path) -> None:
    """In a process of its own: one that has used JAX's devices can join nobody."""
    words = ["--path", str(tmp_path), "--size", "1", "--timeout", "1", "--backend", "jax", "--json"]
    environ = {**clean_environ(), **torchrun_environ(0, 2, free_port())}
    ended = subprocess.run([sys.executable, "-c", ALONE, *words], env=environ, capture_output=True, text=True)
    assert ended.returncode == 1, ended
    row = json.loads(ended.stdout)["readiness"][0]
    assert (row["topic"], row["verdict"]) == ("launcher", "error")
    assert re.match(r"rank 0: not all 2 ranks joined at 127.0.0.1:\d+ within 1 s: rank 1 did not come", texts(row)[0])
    assert texts(row)[1] == "all that follows is of this process' machine alone"


@pytest.mark.parametrize("words", [["--size", "0"], ["--timeout", "soon"], ["--timeout", "-1"], ["--backend", "mpi"]])
def test_a_wrong_command_line(words: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        doctor.main(words)
    assert raised.value.code == 2


def test_words_for_a_job_ask_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["no-such-job", "--stacks"]) == 2
    assert "no job called no-such-job runs here" in capsys.readouterr().err
