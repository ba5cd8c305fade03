"""Start and follow jobs on TPU VMs by ``gcloud``."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Iterator

from allranks.engines.base import EngineFailed, JobRow, Submission
from allranks.engines.clients import connections, programs
from allranks.engines.host_script import HOST_JOBS, common_exit_code, exit_codes, list_jobs, rows
from allranks.engines.kinds import tpu

_POLL = 10.0
_NO_GCLOUD = "Install the Google Cloud CLI, and log in: gcloud auth login."
# States of a queued resource that has no hosts any more.
_ENDED = frozenset({"FAILED", "SUSPENDED", "SUSPENDING", "DELETING"})


class Client:
    """The client of the TPU VMs of one profile. The hosts start allranks by the profile's ``launcher``."""

    def __init__(self, profile: tpu.Profile, launcher: tuple[str, ...]) -> None:
        self._profile, self._launcher = profile, launcher

    def preview(self, job: Submission) -> str:
        place = self._place(job)
        script = self._script(job, place)
        if place.queued:
            command = programs.shown(tpu.create(place, self._profile, "startup.sh"))
            return f"cat > startup.sh <<'END'\n{script}END\n{command}"
        return programs.shown(tpu.on_workers(place, self._profile, script))

    def submit(self, job: Submission, report: Callable[[str], None]) -> None:
        place = self._place(job)
        script = self._script(job, place)
        if place.queued:
            with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
                file.write(f"#!/bin/sh\n{script}")
                file.flush()
                self._gcloud(tpu.create(place, self._profile, file.name))
        else:
            self._gcloud(tpu.on_workers(place, self._profile, script))
        report(place.job.reference)

    def _place(self, job: Submission) -> tpu.Reference:
        queued = not self._profile.tpu
        name = f"{job.name}-{secrets.token_hex(3)}"
        return tpu.parse(tpu.host_job(self._profile, name, queued=queued).reference)

    def _script(self, job: Submission, place: tpu.Reference) -> str:
        return tpu.script(job, self._profile, place.job, launcher=self._launcher)

    def jobs(self) -> list[JobRow]:
        if not self._profile.tpu:
            return tpu.rows(self._gcloud(tpu.listing(self._profile)), self._profile)
        place = tpu.parse(tpu.host_job(self._profile, "none", queued=False).reference)
        return rows("tpu", self._gcloud(tpu.on_workers(place, self._profile, list_jobs(HOST_JOBS))))

    def logs(self, reference: str, *, follow: bool) -> Iterator[str]:
        place = self._active(reference, wait=follow)
        programs.need("gcloud", kind="tpu", install=_NO_GCLOUD)
        command = tpu.on_workers(place, self._profile, place.job.logs(follow=follow, label=True))
        yield from connections.lines({place.tpu: command}, {place.tpu: ""})

    def wait(self, reference: str) -> int:
        place = self._active(reference, wait=True)
        codes = exit_codes(self._gcloud(tpu.on_workers(place, self._profile, place.job.wait())))
        if not codes:
            raise EngineFailed(f"tpu: job {reference}: no host has reported an exit code.")
        return common_exit_code(codes)

    def cancel(self, reference: str) -> None:
        place = tpu.parse(reference)
        if place.queued:
            self._gcloud(tpu.delete(place))
        else:
            self._gcloud(tpu.on_workers(place, self._profile, place.job.cancel()))

    def _active(self, reference: str, *, wait: bool) -> tpu.Reference:
        """Return the parts of a reference; with ``wait``, wait until a queued resource has its hosts."""
        place = tpu.parse(reference)
        while place.queued:
            state = self._gcloud(tpu.describe(place)).strip()
            if state == "ACTIVE":
                break
            if not wait or state in _ENDED:
                raise EngineFailed(f"tpu: job {reference} has no hosts: its queued resource is {state or 'unknown'}.")
            time.sleep(_POLL)
        return place

    def _gcloud(self, argv: list[str]) -> str:
        return programs.output(argv, kind="tpu", install=_NO_GCLOUD)
