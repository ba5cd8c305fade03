"""Hosts on this machine: each has its own network, host name, processes, sshd and Slurm node. See hosts.sh."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import harness

_SCRIPT = Path(__file__).with_name("hosts.sh")
_PATIENCE = 60.0
_PACKAGES = {
    "iproute2": ("ip",),
    "util-linux": ("nsenter", "setpriv", "unshare"),
    "openssh-server": ("sshd",),
    "openssh-client": ("ssh", "ssh-keygen"),
    "slurm-wlm": ("scancel", "sinfo", "slurmctld", "slurmd", "srun"),
    "munge": ("munged",),
    "openmpi-bin": ("mpirun",),
}
# Where an unprivileged user's PATH does not lead.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def missing() -> str:
    """Return why no hosts can be started on this machine, or ""."""
    packages = [name for name, programs in _PACKAGES.items() if not all(map(_is_there, programs))]
    if packages:
        return f"hosts of their own need {', '.join(packages)}: apt-get install {' '.join(packages)}"
    namespaces = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc"]
    cables = "ip link add br0 type bridge && ip link add cable type veth peer name end && mount -t tmpfs tmpfs /mnt"
    tried = subprocess.run([*namespaces, "sh", "-c", cables], capture_output=True, env={**os.environ, "PATH": _PATH})
    if os.getuid() != 0 or tried.returncode:
        return f"hosts of their own need root and namespaces: {tried.stderr.decode().strip()}"
    return ""


def _is_there(program: str) -> bool:
    return shutil.which(program, path=_PATH) is not None


class Hosts:
    """The running hosts. ``names`` are their names, ``folder`` has their configuration and logs."""

    def __init__(self, folder: Path, names: Sequence[str], script: subprocess.Popen[str]) -> None:
        self.folder, self.names = folder, tuple(names)
        self._script = script
        self._off: set[str] = set()
        self._await_ready("start")

    def on(
        self, host: str, argv: Sequence[str | Path], *, env: Mapping[str, str] = {}, **popen: Any
    ) -> subprocess.Popen[Any]:
        """Start a process of a host, in this process's working directory, with no variables of another launcher.

        A signal to the returned process does not reach that of the host, which gets SIGTERM when the former has ended.
        """
        environ = harness.clean_environ({"PATH": _PATH, **env})
        return subprocess.Popen([self.folder / "on", host, *argv], env=environ, **popen)

    def run(
        self, host: str, argv: Sequence[str | Path], *, env: Mapping[str, str] = {}, timeout: float = _PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Run a process of a host to its end; return its exit code and its output (stdout and stderr as one)."""
        log = self.folder / "run.log"
        with log.open("wb") as file:
            process = self.on(host, argv, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"{argv} on {host} after {timeout:g} s:\n{_text(log)}") from None
            finally:
                process.kill()
                process.wait()
        return subprocess.CompletedProcess(argv, code, _text(log))

    def cut(self, host: str) -> None:
        """Unplug the network cable of a host."""
        self._order(f"cut {host}")

    def mend(self, host: str) -> None:
        """Plug the network cable of a host in again."""
        self._order(f"mend {host}")

    def power_off(self, host: str) -> None:
        """Kill all processes of a host."""
        self._order(f"power_off {host}")
        self._off.add(host)

    def power_on(self, host: str) -> None:
        """Start a host again."""
        self._order(f"power_on {host}")
        self._off.discard(host)

    def clean(self) -> None:
        """Plug in all cables, start the hosts that are off, and end Slurm's jobs and what a test has started."""
        for host in sorted(self._off):
            self.power_on(host)
        for host in self.names:
            self.mend(host)
        self._order("clean")

    @property
    def ssh(self) -> list[str]:
        """The beginning of an ``ssh`` command, for use on a host."""
        return ["ssh", "-F", str(self.folder / "ssh_config")]

    def mpirun(self, size: int, argv: Sequence[str | Path]) -> tuple[list[str], dict[str, str]]:
        """Return the command and the variables with which ``mpirun`` starts ``size`` ranks, one a host in turn."""
        network = [word for part in ("oob", "btl") for word in ("--mca", f"{part}_tcp_if_include", "eth0")]
        where = ["--host", ",".join(f"{host}:{size}" for host in self.names), "--map-by", "node"]
        agent = ["--mca", "plm_rsh_agent", " ".join(self.ssh)]
        passed = [word for name in ("PYTHONPATH", "JAX_PLATFORMS", "OMP_NUM_THREADS", "NPROC") for word in ("-x", name)]
        return ["mpirun", *agent, *network, *where, *passed, "-n", str(size), *map(str, argv)], _MPI

    def _order(self, order: str) -> None:
        assert self._script.stdin is not None
        self._script.stdin.write(f"{order}\n")
        self._script.stdin.flush()
        self._await_ready(order)

    def _await_ready(self, what: str) -> None:
        assert self._script.stdout is not None
        if self._script.stdout.readline() != "ready\n":
            raise RuntimeError(f"hosts: {what} failed:\n{_text(self.folder / 'hosts.log')}")


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


@contextlib.contextmanager
def running(folder: Path, size: int = 4) -> Iterator[Hosts]:
    """Start the hosts h0, h1, ...; end them, with all their processes, at the end of the ``with``.

    ``folder`` is empty, and takes their configuration and logs.
    """
    names = [f"h{number}" for number in range(size)]
    with (
        (folder / "hosts.log").open("wb") as log,
        subprocess.Popen(
            [_SCRIPT, folder, *names],
            env={**os.environ, "PATH": _PATH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as script,
    ):
        try:
            yield Hosts(folder, names, script)
        finally:
            script.kill()  # the kernel then kills the hosts
