"""Start and follow jobs on a Ray cluster, by Ray's Jobs API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import time
from collections.abc import Callable, Iterator

from ray.job_submission import JobSubmissionClient

from allranks.engines.base import EngineFailed, JobRow, Submission
from allranks.engines.kinds import ray as kind

_POLL = 1.0


class Client:
    """The client of one Ray cluster. The hosts start allranks by their own Python."""

    def __init__(self, profile: kind.Profile, _launcher: tuple[str, ...]) -> None:
        self._profile = profile

    def preview(self, job: Submission) -> str:
        request = kind.request(job, self._profile)
        command = ["ray", "job", "submit", "--address", self._profile.address]
        return (
            f"{shlex.join([*command, '--runtime-env-json', json.dumps(request.runtime_env)])} -- {request.entrypoint}"
        )

    def submit(self, job: Submission, report: Callable[[str], None]) -> None:
        request = kind.request(job, self._profile)
        with _errors(self._profile.address):
            number = JobSubmissionClient(self._profile.address).submit_job(
                entrypoint=request.entrypoint,
                runtime_env=dict(request.runtime_env),
                metadata=dict(request.metadata),
            )
        report(f"{number}@{self._profile.address}")

    def jobs(self) -> list[JobRow]:
        with _errors(self._profile.address):
            listed = JobSubmissionClient(self._profile.address).list_jobs()
        return [
            JobRow(
                f"ray:{one.submission_id}@{self._profile.address}", one.metadata["job_name"], str(one.status.value), "?"
            )
            for one in listed
            if (one.metadata or {}).items() >= kind.METADATA.items()
        ]

    def logs(self, reference: str, *, follow: bool) -> Iterator[str]:
        number, address = kind.parse(reference)
        with _errors(address):
            client = JobSubmissionClient(address)
            if not follow:
                yield from client.get_job_logs(number).splitlines()
                return
            client.get_job_info(number)
            blocks, partial = client.tail_job_logs(number), ""
            with contextlib.closing(asyncio.new_event_loop()) as loop:
                while True:
                    try:
                        block = loop.run_until_complete(anext(blocks))
                    except StopAsyncIteration:
                        break
                    *lines, partial = (partial + block).split("\n")
                    yield from lines
            if partial:
                yield partial

    def wait(self, reference: str) -> int:
        number, address = kind.parse(reference)
        with _errors(address):
            client = JobSubmissionClient(address)
            while True:
                info = client.get_job_info(number)
                code = kind.exit_code(str(info.status.value), info.driver_exit_code)
                if code is not None:
                    return code
                time.sleep(_POLL)

    def cancel(self, reference: str) -> None:
        number, address = kind.parse(reference)
        with _errors(address):
            JobSubmissionClient(address).stop_job(number)


@contextlib.contextmanager
def _errors(address: str) -> Iterator[None]:
    """Raise EngineFailed for the errors of Ray's client, in its own words."""
    try:
        yield
    except (RuntimeError, ConnectionError, ValueError) as error:
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise EngineFailed(f"ray: {address}: {words[-1].rstrip('.')}.") from error
