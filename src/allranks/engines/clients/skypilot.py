"""Start and follow jobs by SkyPilot's Python SDK."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import requests
import sky
import sky.exceptions

from allranks.engines.base import EngineFailed, JobRow, Submission
from allranks.engines.kinds import skypilot
from allranks.engines.yaml_text import to_yaml

_POLL = 5.0
# So long a cluster waits after its job, if it is not kept: its logs and exit code can still be read.
_IDLE_MINUTES = 10
# SkyPilot's errors have no common base.
_NAMES = [*vars(sky.exceptions).values(), requests.RequestException]
_ERRORS = tuple(one for one in _NAMES if isinstance(one, type) and issubclass(one, Exception))


class Client:
    """The client of SkyPilot. The hosts start allranks by the profile's ``launcher``."""

    def __init__(self, profile: skypilot.Profile, _launcher: tuple[str, ...]) -> None:
        self._profile = profile

    def preview(self, job: Submission) -> str:
        with _errors():
            sky.Task.from_yaml_config(skypilot.task(job, self._profile))
        return to_yaml(skypilot.task(job, self._profile)).rstrip()

    def submit(self, job: Submission, report: Callable[[str], None]) -> None:
        with _errors():
            task = sky.Task.from_yaml_config(skypilot.task(job, self._profile))
            if self._profile.managed:
                numbers, _ = sky.stream_and_get(sky.jobs.launch(task, name=job.name))
                number, cluster = numbers[0] if isinstance(numbers, list) else numbers, ""
            else:
                cluster = self._profile.cluster or job.name
                idle = None if self._profile.keep else _IDLE_MINUTES
                request = sky.launch(
                    task, cluster_name=cluster, idle_minutes_to_autostop=idle, down=not self._profile.keep
                )
                number, _ = sky.stream_and_get(request)
        report(str(skypilot.Reference(number, cluster)))

    def jobs(self) -> list[JobRow]:
        with _errors():
            if not self._profile.cluster:
                records = sky.get(sky.jobs.queue(refresh=False))
                return [_row(record, "") for record in records]
            return [_row(record, self._profile.cluster) for record in sky.get(sky.queue(self._profile.cluster))]

    def logs(self, reference: str, *, follow: bool) -> Iterator[str]:
        place = skypilot.parse(reference)
        with _errors():
            if place.cluster:
                lines = sky.tail_logs(place.cluster, place.number, follow=follow, preload_content=False)
            else:
                lines = sky.jobs.tail_logs(job_id=place.number, follow=follow, preload_content=False)
            yield from (line.rstrip("\n") for line in lines if line is not None)

    def wait(self, reference: str) -> int:
        place = skypilot.parse(reference)
        while (code := skypilot.ended(self._status(place))) is None:
            time.sleep(_POLL)
        return code

    def _status(self, place: skypilot.Reference) -> object:
        with _errors():
            if place.cluster:
                return sky.get(sky.job_status(place.cluster, [place.number])).get(place.number)
            records = sky.get(sky.jobs.queue(refresh=False, job_ids=[place.number]))
        if not records:
            raise EngineFailed(f"skypilot: there is no managed job {place.number}.")
        return _field(records[0], "status")

    def cancel(self, reference: str) -> None:
        place = skypilot.parse(reference)
        with _errors():
            if place.cluster:
                sky.get(sky.cancel(place.cluster, job_ids=[place.number]))
            else:
                sky.get(sky.jobs.cancel(job_ids=[place.number]))


def _row(record: Any, cluster: str) -> JobRow:
    status = _field(record, "status")
    reference = skypilot.Reference(int(_field(record, "job_id")), cluster)
    return JobRow(f"skypilot:{reference}", _field(record, "job_name"), getattr(status, "value", str(status)), "?")


def _field(record: Any, name: str) -> Any:
    """Return a field of a record, which is an object in newer versions, and a dictionary in older ones."""
    return record[name] if isinstance(record, dict) else getattr(record, name)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Raise EngineFailed for the errors of SkyPilot, in its own words."""
    try:
        yield
    except _ERRORS as error:
        raise EngineFailed(f"skypilot: {type(error).__name__}: {str(error).strip().rstrip('.')}.") from error
    except (ValueError, OSError) as error:
        raise EngineFailed(f"skypilot: {str(error).strip().rstrip('.')}.") from error
