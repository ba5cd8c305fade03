"""Query the metadata server of a cloud for notices that this machine is about to be taken away.

A notice has the effect of SIGTERM to this launcher: the ranks save and leave. The table ``SOURCES`` has what to query.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# Seconds between two queries, and for one answer. The shortest notice, that of preemption in GCE, is 30 s.
EVERY, _ANSWER = 2.0, 2.0


@dataclass(frozen=True, slots=True)
class NoticeSource:
    """The metadata server of a cloud.

    - ``address``: of the server; the ``variable`` overrides it, as in the cloud's own tools.
    - ``paths``: what to query, each with the values that are a notice; () for any value. HTTP 404 is no notice.
    - ``headers``: of each query. ``token``: a path, a header of its query, and the header that has the answer.
    """

    name: str
    address: str
    variable: str
    paths: Mapping[str, tuple[str, ...]]
    headers: Mapping[str, str] = field(default_factory=dict)
    token: tuple[str, tuple[str, str], str] | None = None

    def base(self, environ: Mapping[str, str]) -> str:
        """Return the URL of the server, without a slash at the end."""
        address = environ.get(self.variable) or self.address
        return (address if "://" in address else f"http://{address}").rstrip("/")


SOURCES = {
    "gce": NoticeSource(
        "gce",
        "metadata.google.internal",
        "GCE_METADATA_HOST",
        {
            "/computeMetadata/v1/instance/maintenance-event": ("TERMINATE_ON_HOST_MAINTENANCE",),
            "/computeMetadata/v1/instance/preempted": ("TRUE",),
        },
        {"Metadata-Flavor": "Google"},
    ),
    "aws": NoticeSource(
        "aws",
        "http://169.254.169.254",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        {"/latest/meta-data/spot/instance-action": ()},
        token=("/latest/api/token", ("X-aws-ec2-metadata-token-ttl-seconds", "60"), "X-aws-ec2-metadata-token"),
    ),
}
NONE = "none"


def source_of(option: str | None, environ: Mapping[str, str]) -> NoticeSource | None:
    """Return what to query: what the ``option`` says, or else the server of a TPU VM; None for nothing."""
    return SOURCES.get(option or ("gce" if "TPU_WORKER_ID" in environ else NONE))


def query(source: NoticeSource, environ: Mapping[str, str]) -> str:
    """Return the notice that the server has, as a text; "" for none. Raises OSError if it does not answer."""
    base, headers = source.base(environ), dict(source.headers)
    if source.token is not None:
        path, (name, value), header = source.token
        headers[header] = _request(base + path, {name: value}, method="PUT") or ""
    for path, values in source.paths.items():
        text = _request(base + path, headers, method="GET")
        if text is not None and (text in values or not values):
            return f"{path.rpartition('/')[2]} is {text}"
    return ""


def _request(url: str, headers: Mapping[str, str], *, method: str) -> str | None:
    """Return the answer; None for HTTP 404. Never through a proxy: the server is of this machine alone.

    Raises OSError if the server does not answer, or if its answer is no HTTP.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=dict(headers), method=method), timeout=_ANSWER) as answer:
            return str(answer.read(4096).decode(errors="replace").strip())
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                return None
        raise
    except http.client.HTTPException as error:
        raise OSError(f"no HTTP ({type(error).__name__}: {error})") from error


def wait_for_notice(
    source: NoticeSource, environ: Mapping[str, str], *, is_required: bool, pause: Callable[[float], object]
) -> str:
    """Return the first notice. ``pause`` waits so many seconds.

    If the server does not answer the first query, return "" at once, or, if it ``is_required``, say so and go on.
    """
    is_first = True
    while True:
        try:
            if notice := query(source, environ):
                return notice
        except OSError as error:
            if is_first and not is_required:
                return ""
            if is_first:
                _print(f"--notices {source.name}: {source.base(environ)} does not answer: {error}")
        is_first = False
        pause(EVERY)


def end_at_notice(source: NoticeSource, *, is_required: bool) -> None:
    """Start a thread that ends this job, as SIGTERM does, at the first notice."""

    def wait() -> None:
        pause = threading.Event().wait
        if notice := wait_for_notice(source, os.environ, is_required=is_required, pause=pause):
            _print(f"notice from {source.name}: {notice}: as SIGTERM")
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="allranks-notices", daemon=True).start()


def _print(text: str) -> None:
    sys.stderr.write(f"allranks: {text}\n")
    sys.stderr.flush()
