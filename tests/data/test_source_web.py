"""Files at addresses: ranges of them, servers that fail, and the hub, each on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from allranks.errors import DataChanged, StorageError

for needed in ("datasets", "pyarrow", "orjson"):
    pytest.importorskip(needed)

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from named_files import SIZES, streamed, write_parquet  # noqa: E402

from allranks.data.sources import web  # noqa: E402
from allranks.data.sources.named import named  # noqa: E402


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test uses what another has left in a cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


class Server(SimpleHTTPRequestHandler):
    """Ranges of files, as the web has them; ``failures`` requests fail first; without ``ranges`` all is sent."""

    failures = 0
    ranges = True
    sent = 0

    def do_GET(self) -> None:
        if type(self).failures:
            type(self).failures -= 1
            self.send_error(503)
            return
        data = Path(self.translate_path(self.path)).read_bytes()
        asked = self.headers.get("Range")
        if asked and self.ranges:
            begin, _, end = asked.removeprefix("bytes=").partition("-")
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end}/{len(data)}")
            data = data[int(begin) : int(end or len(data)) + 1]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        type(self).sent += len(data)
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path, **how: Any) -> Iterator[tuple[type[Server], str]]:
    kind = type("OneServer", (Server,), how)
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: kind(*args, directory=str(folder)))
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a reader that has enough hangs up
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield kind, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_files_of_the_web_are_read_in_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank of four reads a quarter of them; a server that fails for a moment is asked again."""
    monkeypatch.setattr(web, "_PAUSES_S", (0.01, 0.01, 0.01))
    noise = np.random.default_rng(0).integers(0, 256, (4000, 200), np.uint8)
    rows = pa.table({"x": list(range(4000)), "y": [row.tobytes() for row in noise]})
    names = ["a.parquet", "b%20b.parquet"]
    for name in ("a.parquet", "b b.parquet"):
        pq.write_table(rows, tmp_path / name, row_group_size=200)
    with serving(tmp_path) as (server, root):
        source = named("parquet", data_files=[f"{root}/{name}" for name in names])
        index = source.index()
        reader = source.open(index)
        server.failures, server.sent = 2, 0
        taken = [row for block in range(0, len(index), 4) for row in reader.read(block).take(np.arange(200))]
        assert [one["x"] % 800 for one in taken] == [*range(200)] * 10
        whole = sum(path.stat().st_size for path in tmp_path.glob("*.parquet"))
        assert reader.bytes_read < 0.28 * whole  # and the footers
        assert server.sent == reader.bytes_read
        again = source.index()  # the server says when files were changed
        assert again.digest == index.digest
        (tmp_path / "a.parquet").write_bytes(b"PAR1" * 9)
        with pytest.raises(
            DataChanged, match=r"a.parquet has changed since it was indexed: expected .* bytes, found 36"
        ):
            source.open(index).read(0)


def test_a_server_without_ranges_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_PAUSES_S", (0.01,))
    (tmp_path / "a.txt").write_bytes(b"line\n" * 100_000)
    with serving(tmp_path, ranges=False) as (_, root):
        files = web.WebFiles(root)
        with pytest.raises(StorageError, match=r"sends all of 'a.txt' where a range"):
            files.read("a.txt", 10, [memoryview(bytearray(10))])
        assert files.size("nope.txt") is None
        with pytest.raises(StorageError, match="it can only be read"):
            files.put("a", b"")


def test_a_name_of_the_hub_is_its_files_at_one_commit(tmp_path: Path) -> None:
    """Of a hub on loopback, asked by the hub's own libraries."""
    environ = {**os.environ, "HF_HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "caches")}
    program = Path(__file__).parent / "programs" / "hub.py"
    for name, many in SIZES.items():
        write_parquet(tmp_path, name, many)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["root"] == f"hf://datasets/owner/name@{'a' * 40}"
    assert said["rows"] == streamed("parquet", data_files=f"{tmp_path}/*.parquet")
