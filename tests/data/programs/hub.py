"""Reads ``owner/name`` from a hub on loopback that has the Parquet files of a folder: ``hub.py FOLDER``.

Prints JSON: the root of the files, and the rows.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

FOLDER = Path(sys.argv[1])
COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """What the hub's own library asks for: about the data set, the list of its files, and ranges of them."""

    def do_GET(self) -> None:
        url = urllib.parse.urlparse(self.path)
        said = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        path = FOLDER / url.path.rpartition("/")[2]
        if url.path.startswith("/api/datasets/owner/name"):
            self._answer(200, json.dumps(self._told(url.path.split("/")[5:], said)).encode())
        elif "/resolve/" in url.path and path.suffix == ".parquet" and path.is_file():
            self._send(path.read_bytes())
        else:
            self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})

    do_HEAD = do_POST = do_GET  # noqa: N815

    def _told(self, steps: list[str], said: str) -> Any:
        files = [
            {"type": "file", "path": one.name, "size": one.stat().st_size, "oid": "b" * 40}
            for one in sorted(FOLDER.glob("*.parquet"))
        ]
        if steps[:1] == ["tree"]:
            return files
        if steps[:1] == ["paths-info"]:
            return [one for one in files if one["path"] in json.loads(said)["paths"]]
        siblings = [{"rfilename": one["path"]} for one in files]
        return {"_id": "1", "id": "owner/name", "sha": COMMIT, "private": False, "tags": [], "siblings": siblings}

    def _send(self, data: bytes) -> None:
        begin, _, end = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        told = {"Content-Range": f"bytes {begin}-{end}/{len(data)}", "ETag": '"1"', "X-Repo-Commit": COMMIT}
        self._answer(206, data[int(begin) : int(end or len(data)) + 1], told)

    def _answer(self, status: int, data: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def read(root: str) -> None:
    """Read all rows; the libraries learn by the environment where the hub is, when they are imported."""
    os.environ["HF_ENDPOINT"] = root
    from allranks.data.sources.named import named

    index = named("owner/name", split="train").index()
    reader = named("owner/name", split="train").open(index)
    rows = [one for block in range(len(index)) for one in reader.read(block).take(np.arange(index.rows[block]))]
    said = {"root": json.loads(index.note)["root"], "rows": rows}
    print(json.dumps(said, default=np.ndarray.tolist))


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    read(f"http://127.0.0.1:{server.server_port}")
