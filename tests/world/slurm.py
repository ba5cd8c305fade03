"""A Slurm of one node on this machine, with its own folder and ports: what ``srun`` needs to start ranks."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from harness import free_port

PROGRAMS = ("slurmctld", "slurmd", "srun", "sinfo")
PATIENCE = 30.0
# No authentication: it listens for as long as a test lasts, and runs what the same user may run anyway.
CONFIGURATION = """\
ClusterName=allranks-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=16
PartitionName=all Nodes={host} Default=YES OverSubscribe=FORCE
"""


def missing() -> list[str]:
    """Return the programs of Slurm that are not installed."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [program for program in PROGRAMS if shutil.which(program, path=path) is None]


@contextlib.contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """Start the daemons, and end them at the end of the ``with``; yields the environment in which ``srun`` works."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            folder=folder,
            host=socket.gethostname().partition(".")[0],
            user=getpass.getuser(),
            controller_port=free_port(),
            node_port=free_port(),
        )
    )
    environ = {"SLURM_CONF": str(configuration), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    with contextlib.ExitStack() as stack:
        for daemon in ("slurmctld", "slurmd"):
            stack.enter_context(_daemon(daemon, folder, environ))
        _await_node(folder, environ)
        yield environ


@contextlib.contextmanager
def _daemon(name: str, folder: Path, environ: dict[str, str]) -> Iterator[None]:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [name, "-D"], env={**os.environ, **environ}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _await_node(folder: Path, environ: dict[str, str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        asked = subprocess.run(
            ["sinfo", "-h", "-o", "%T"], env={**os.environ, **environ}, capture_output=True, text=True
        )
        if asked.stdout.strip() == "idle":
            return
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text() for path in folder.glob("*.log"))
            raise TimeoutError(f"Slurm's node is {asked.stdout!r} after {PATIENCE:g} s: {asked.stderr}\n{logs}")
        time.sleep(0.1)
