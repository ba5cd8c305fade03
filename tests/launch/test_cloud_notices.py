"""Notices of a cloud's metadata server end a job as SIGTERM does."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import harness
import pytest

from allranks.launch.cloud_notices import SOURCES, query, source_of, wait_for_notice

GCE = "/computeMetadata/v1/instance/"
QUIET = {f"{GCE}maintenance-event": "NONE", f"{GCE}preempted": "FALSE", "/latest/api/token": "t"}


@contextmanager
def served(pages: dict[str, str]) -> Iterator[dict[str, str]]:
    """Serve pages as both clouds do; return the variables that lead to them."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_google = self.path.startswith("/computeMetadata")
            given = self.headers["Metadata-Flavor" if is_google else "X-aws-ec2-metadata-token"]
            self._answer(403 if given != ("Google" if is_google else "t") else 404)

        def do_PUT(self) -> None:
            self._answer(400 if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] is None else 404)

        def _answer(self, otherwise: int) -> None:
            is_good = otherwise == 404 and self.path in pages
            self.send_response(200 if is_good else otherwise)
            self.end_headers()
            self.wfile.write(pages[self.path].encode() if is_good else b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        address = f"127.0.0.1:{server.server_port}"
        yield {"GCE_METADATA_HOST": address, "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{address}/"}
        server.shutdown()


@pytest.mark.parametrize(
    ("cloud", "page", "notice"),
    [
        ("gce", {}, ""),
        ("aws", {}, ""),
        ("gce", {f"{GCE}maintenance-event": "MIGRATE_ON_HOST_MAINTENANCE"}, ""),
        (
            "gce",
            {f"{GCE}maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE"},
            "maintenance-event is TERMINATE_ON_HOST_MAINTENANCE",
        ),
        ("gce", {f"{GCE}preempted": "TRUE"}, "preempted is TRUE"),
        (
            "aws",
            {"/latest/meta-data/spot/instance-action": '{"action": "terminate"}'},
            'instance-action is {"action": "terminate"}',
        ),
    ],
)
def test_a_notice_is_what_the_table_says(cloud: str, page: dict[str, str], notice: str) -> None:
    """A live migration ends nothing."""
    with served({**QUIET, **page}) as environ:
        assert query(SOURCES[cloud], environ) == notice


def test_a_notice_that_comes_later_is_waited_for() -> None:
    pages = dict(QUIET)
    with served(pages) as environ:

        def pause(_: float) -> None:
            pages[f"{GCE}preempted"] = "TRUE"

        assert wait_for_notice(SOURCES["gce"], environ, is_required=True, pause=pause) == "preempted is TRUE"


def test_without_a_server_nothing_is_queried_again_unless_it_is_required(capfd: pytest.CaptureFixture[str]) -> None:
    with served(QUIET) as environ:
        gone = environ
    assert wait_for_notice(SOURCES["gce"], gone, is_required=False, pause=pytest.fail) == ""
    assert capfd.readouterr().err == ""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise EOFError

    with pytest.raises(EOFError):
        wait_for_notice(SOURCES["gce"], gone, is_required=True, pause=pause)
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith("allranks: --notices gce: http://127.0.0.1:")
    assert "does not answer" in line


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xfe garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b""],
)
def test_an_answer_that_is_no_http_is_no_end_of_the_queries(garbage: bytes) -> None:
    pauses: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as server, served({**QUIET, f"{GCE}preempted": "TRUE"}) as good:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(garbage)

        thread = threading.Thread(target=answer)
        thread.start()
        environ = {"GCE_METADATA_HOST": f"127.0.0.1:{server.getsockname()[1]}"}

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            environ.update(good)

        assert wait_for_notice(SOURCES["gce"], environ, is_required=True, pause=pause) == "preempted is TRUE"
        thread.join()
    assert len(pauses) == 1


@pytest.mark.parametrize(
    ("option", "environ", "name"),
    [
        (None, {}, None),
        (None, {"TPU_WORKER_ID": "0"}, "gce"),
        ("none", {"TPU_WORKER_ID": "0"}, None),
        ("aws", {}, "aws"),
    ],
)
def test_a_server_is_queried_where_an_option_or_a_tpu_says_so(
    option: str | None, environ: dict[str, str], name: str | None
) -> None:
    source = source_of(option, environ)
    assert (source and source.name) == name


@pytest.mark.soak
def test_the_ranks_save_and_leave_at_a_notice(tmp_path: Path) -> None:
    """As after SIGTERM, with its exit code."""
    script = tmp_path / "train.py"
    script.write_text("import pathlib, threading\npathlib.Path('up').touch()\nthreading.Event().wait(60)\n")

    class Pages(dict[str, str]):
        def __getitem__(self, path: str) -> str:
            return "TRUE" if path == f"{GCE}preempted" and (tmp_path / "up").exists() else super().__getitem__(path)

    with served(Pages(QUIET)) as environ, contextlib.chdir(tmp_path):
        command = [sys.executable, "-m", "allranks", "run", "-n", "2", "--notices", "gce", str(script)]
        job = harness.run_commands([(command, {**harness.clean_environ(), **environ})])
    assert job.codes == [143], job
    assert "allranks: notice from gce: preempted is TRUE: as SIGTERM" in job.ranks[0].text, job
