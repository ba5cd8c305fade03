"""Start and follow jobs on hosts that are reached by SSH, each host over a connection of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping

from allranks.engines.base import EngineFailed, JobRow, Submission
from allranks.engines.clients import connections, programs
from allranks.engines.host_script import HostJob, common_exit_code, exit_codes, list_jobs, rows
from allranks.engines.kinds import ssh

_INSTALL = "Install the client of OpenSSH (and rsync for sync = true)."


class Client:
    """The client of a group of hosts. ``launcher`` starts allranks on them."""

    def __init__(self, profile: ssh.Profile, launcher: tuple[str, ...]) -> None:
        self._profile, self._launcher = profile, launcher

    def preview(self, job: Submission) -> str:
        lines = []
        for host, script in self._scripts(job, secrets.token_hex(3)).items():
            if self._profile.sync:
                lines.append(programs.shown(ssh.copy(job, self._profile, host)))
            command = programs.shown(ssh.connect(self._profile, host, script))
            lines.append(f"{command} <<'END'\n{script}END")
        return "\n".join(lines)

    def submit(self, job: Submission, report: Callable[[str], None]) -> int | None:
        token = secrets.token_hex(3)
        if self._profile.sync:
            for host in self._profile.hosts:
                programs.output(ssh.copy(job, self._profile, host), kind="ssh", install=_INSTALL)
        scripts = self._scripts(job, token)
        reference = ssh.host_job(job, self._profile, token).reference
        if self._profile.detach:
            self._on_all(scripts)
            report(reference)
            return None
        programs.need("ssh", kind="ssh", install=_INSTALL)
        report(reference)
        commands = {host: ssh.connect(self._profile, host, script) for host, script in scripts.items()}
        return connections.hold(commands, scripts, grace=job.grace)

    def _scripts(self, job: Submission, token: str) -> dict[str, str]:
        return ssh.scripts(job, self._profile, launcher=self._launcher, token=token, environ=os.environ)

    def jobs(self) -> list[JobRow]:
        if not self._profile.hosts:
            raise EngineFailed("ssh: no host is named.", remedy='Write hosts = ["a", "b"] in the profile.')
        script = list_jobs(ssh.jobs_folder(self._profile))
        return rows("ssh", "".join(self._on_all(dict.fromkeys(self._profile.hosts, script)).values()))

    def logs(self, reference: str, *, follow: bool) -> Iterator[str]:
        job, hosts = ssh.parse(reference, self._profile)
        script = job.logs(follow=follow)
        commands = {host: ssh.connect(self._profile, host, script) for host in hosts}
        programs.need("ssh", kind="ssh", install=_INSTALL)
        yield from connections.lines(commands, dict.fromkeys(hosts, script))

    def wait(self, reference: str) -> int:
        printed = self._of_job(reference, HostJob.wait)
        return common_exit_code(code for text in printed.values() for code in exit_codes(text))

    def cancel(self, reference: str) -> None:
        self._of_job(reference, HostJob.cancel)

    def _of_job(self, reference: str, script: Callable[[HostJob], str]) -> dict[str, str]:
        job, hosts = ssh.parse(reference, self._profile)
        return self._on_all(dict.fromkeys(hosts, script(job)))

    def _on_all(self, scripts: Mapping[str, str]) -> dict[str, str]:
        """Run a script on each host, all at once, and return what each prints."""
        programs.need("ssh", kind="ssh", install=_INSTALL)
        commands = {host: ssh.connect(self._profile, host, script) for host, script in scripts.items()}
        return connections.outputs(commands, scripts, kind="ssh")
