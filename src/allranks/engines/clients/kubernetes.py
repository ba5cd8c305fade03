"""Start and follow jobs on Kubernetes, by its official client."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import urllib3
from kubernetes import client as api
from kubernetes import config

from allranks.engines.base import EngineFailed, JobRow, Submission
from allranks.engines.frames import with_host
from allranks.engines.kinds import kubernetes as kind
from allranks.engines.manifest_rules import faults
from allranks.engines.yaml_text import to_yaml

_POLL = 2.0
_BAD_REQUEST, _NOT_FOUND = 400, 404


class Client:
    """The client of one cluster. The hosts start allranks from their image."""

    def __init__(self, profile: kind.Profile, _launcher: tuple[str, ...]) -> None:
        self._profile = profile
        self._connected: dict[str, api.ApiClient] = {}

    def preview(self, job: Submission) -> str:
        return to_yaml(self._manifest(job)).rstrip()

    def _manifest(self, job: Submission) -> dict[str, Any]:
        """Return the manifest. Raises EngineFailed with all that is wrong with it."""
        manifest = kind.manifest(job, self._profile)
        if wrong := faults(manifest, job):
            raise EngineFailed(f"kubernetes: {'; '.join(wrong)}.")
        return manifest

    def submit(self, job: Submission, report: Callable[[str], None]) -> None:
        manifest = self._manifest(job)
        place = kind.Reference(self._profile.namespace, self._profile.form, job.name, self._profile.context)
        with _errors(f"job {job.name!r}"):
            self._objects(place).create_namespaced_custom_object(
                *_path(place), body=manifest, field_validation="Strict"
            )
        report(str(place))

    def jobs(self) -> list[JobRow]:
        found = []
        for form in kind.FORMS:
            place = kind.Reference(self._profile.namespace, form, "", self._profile.context)
            labels = ",".join(f"{name}={value}" for name, value in kind.MANAGED.items())
            with _errors("jobs"):
                try:
                    listed = self._objects(place).list_namespaced_custom_object(*_path(place), label_selector=labels)
                except api.ApiException as error:
                    if error.status == _NOT_FOUND:  # this form is not installed
                        continue
                    raise
            for item in listed["items"]:
                name = item["metadata"]["name"]
                found.append(kind.row(item, kind.Reference(place.namespace, form, name, place.context)))
        return found

    def logs(self, reference: str, *, follow: bool) -> Iterator[str]:
        place = kind.parse(reference)
        self._item(place)
        seen: set[str] = set()
        while True:
            ended = not follow or kind.ended(self._item(place)) != ""  # before the pods: none comes after it
            pods = [pod for pod in self._pods(place) if pod["metadata"]["uid"] not in seen and _has_started(pod)]
            seen |= {pod["metadata"]["uid"] for pod in pods}
            yield from self._lines(place, pods, follow=follow)
            if ended:
                return
            time.sleep(_POLL)

    def _lines(self, place: kind.Reference, pods: list[dict[str, Any]], *, follow: bool) -> Iterator[str]:
        """Yield the lines of these pods as they come, all pods at once."""
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

        def read(pod: dict[str, Any]) -> None:
            host = pod["metadata"].get("labels", {}).get(kind.INDEX_LABEL, pod["metadata"]["name"])
            try:
                stream = api.CoreV1Api(self._client(place.context)).read_namespaced_pod_log(
                    pod["metadata"]["name"], place.namespace, follow=follow, _preload_content=False
                )
                rest = b""
                for block in stream.stream():
                    *whole, rest = (rest + block).split(b"\n")
                    for line in whole:
                        lines.put(with_host(f"host-{host}", line.decode(errors="replace"), of=len(pods)))
                if rest:
                    lines.put(with_host(f"host-{host}", rest.decode(errors="replace"), of=len(pods)))
            except (api.ApiException, urllib3.exceptions.HTTPError) as error:
                lines.put(f"host-{host}: allranks: its output cannot be read: {_message(error)}")
            finally:
                lines.put(None)

        for pod in pods:
            threading.Thread(target=read, args=(pod,), daemon=True).start()
        remaining = len(pods)
        while remaining:
            line = lines.get()
            if line is None:
                remaining -= 1
            else:
                yield line

    def wait(self, reference: str) -> int:
        place = kind.parse(reference)
        while not (ended := kind.ended(self._item(place))):
            time.sleep(_POLL)
        return 0 if ended != "Failed" else kind.exit_code(self._pods(place)) or 1

    def cancel(self, reference: str) -> None:
        place = kind.parse(reference)
        with _errors(f"job {reference}"):
            self._objects(place).delete_namespaced_custom_object(
                *_path(place), place.name, propagation_policy="Foreground"
            )

    def _item(self, place: kind.Reference) -> dict[str, Any]:
        with _errors(f"job {place}"):
            item: dict[str, Any] = self._objects(place).get_namespaced_custom_object(*_path(place), place.name)
        return item

    def _pods(self, place: kind.Reference) -> list[dict[str, Any]]:
        """Return the pods of a job, in the order of their hosts."""
        core = api.CoreV1Api(self._client(place.context))
        with _errors(f"the pods of job {place}"):
            listed = core.list_namespaced_pod(place.namespace, label_selector=f"{kind.POD_LABEL}={place.name}")
        pods: list[dict[str, Any]] = [core.api_client.sanitize_for_serialization(pod) for pod in listed.items]
        return sorted(pods, key=lambda pod: int(pod["metadata"].get("labels", {}).get(kind.INDEX_LABEL, 0)))

    def _objects(self, place: kind.Reference) -> api.CustomObjectsApi:
        return api.CustomObjectsApi(self._client(place.context))

    def _client(self, context: str) -> api.ApiClient:
        if context not in self._connected:
            with _errors("its configuration"):
                self._connected[context] = _connect(context)
        return self._connected[context]


def _connect(context: str) -> api.ApiClient:
    """Return a client by the user's kubeconfig; inside of a pod, by its service account."""
    try:
        return config.new_client_from_config(context=context or None)
    except config.ConfigException:
        if context:
            raise
        try:
            config.load_incluster_config()
        except config.ConfigException:
            pass
        else:
            return api.ApiClient()
        raise


def _path(place: kind.Reference) -> tuple[str, str, str, str]:
    form = kind.FORMS[place.form]
    return form.group, form.version, place.namespace, form.plural


def _has_started(pod: dict[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in ("Running", "Succeeded", "Failed")


@contextlib.contextmanager
def _errors(what: str) -> Iterator[None]:
    """Raise EngineFailed for the errors of the client, with the server's own words."""
    try:
        yield
    except (api.ApiException, urllib3.exceptions.HTTPError, config.ConfigException) as error:
        remedy = ""
        if isinstance(error, config.ConfigException):
            remedy = "Is there a kubeconfig (KUBECONFIG, ~/.kube/config), with the context of the profile?"
        raise EngineFailed(f"kubernetes: {what}: {_message(error).rstrip('.')}.", remedy=remedy) from error


def _message(error: Exception) -> str:
    """Return the words of the server, or of the connection."""
    if isinstance(error, api.ApiException):
        try:
            return f"{json.loads(error.body)['message']} ({error.status})"
        except (TypeError, ValueError, KeyError):
            return f"{error.reason} ({error.status})"
    return str(error)
