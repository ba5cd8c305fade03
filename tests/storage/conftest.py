"""Every storage under one name each, and an S3 service on loopback with a proxy in front that fails on demand."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allranks.storage import LocalStorage, MemoryStorage
from allranks.storage.base import Storage

SHARED_MEMORY = Path("/dev/shm")
SERVER = """
import logging, sys, threading
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

# As S3 does, and moto does not: one conditional PUT at a time looks whether the object is there, and puts it.
one_at_a_time, put_object = threading.Lock(), S3Response.put_object
def put_alone(self):
    with one_at_a_time:
        return put_object(self)
S3Response.put_object = put_alone
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    """The port of an S3 service of this session's own, with a bucket ``runs``."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with server:
        assert server.stdin
        assert server.stdout
        port = int(server.stdout.readline())
        request = urllib.request.Request(f"http://127.0.0.1:{port}/runs", method="PUT")
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
        yield port
        server.stdin.close()
        server.kill()


@pytest.fixture
def open_s3(s3_port: int) -> Callable[..., Storage]:
    """Open a fresh prefix of the bucket, or the one named, through a port."""
    from allranks.storage.object import ObjectStorage

    def open_one(port: int = s3_port, *, prefix: str = "", bucket: str = "runs", **options: object) -> Storage:
        return ObjectStorage(
            f"s3://{bucket}/{prefix or uuid.uuid4().hex}",
            endpoint=f"http://127.0.0.1:{port}",
            access_key_id="test",
            secret_access_key="test",
            region="us-east-1",
            **options,
        )

    return open_one


@pytest.fixture(params=["local", "tmpfs", "memory", pytest.param("s3", marks=pytest.mark.needs("obstore", "moto"))])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """Every kind of storage, empty."""
    kind = request.param
    if kind == "tmpfs":
        if not SHARED_MEMORY.is_dir():
            pytest.skip("there is no /dev/shm")
        folder = tempfile.mkdtemp(dir=SHARED_MEMORY)
        yield LocalStorage(Path(folder, "not", "yet"))
        shutil.rmtree(folder)
    elif kind == "s3":
        yield request.getfixturevalue("open_s3")()
    else:
        yield LocalStorage(tmp_path / "not" / "yet") if kind == "local" else MemoryStorage()
