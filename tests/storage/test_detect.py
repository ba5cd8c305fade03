"""Which storage an address means."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from allranks.errors import StorageError
from allranks.storage import LocalStorage, MemoryStorage
from allranks.storage.detect import open_storage


@pytest.mark.parametrize("address", ["/runs/a b", Path("/runs/a b"), "file:///runs/a%20b", "file://localhost/runs/a b"])
def test_a_path_is_a_folder(address: str | Path) -> None:
    storage = open_storage(address)
    assert isinstance(storage, LocalStorage)
    assert storage.url == "/runs/a b"


def test_a_relative_path_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("runs/a").url == f"{tmp_path}/runs/a"


def test_a_storage_is_taken_as_it_is() -> None:
    storage = MemoryStorage()
    assert open_storage(storage) is storage


@pytest.mark.parametrize("address", ["ftp://host/x", "http://host/x", "S3//typo://x", "file://otherhost/x"])
def test_an_unknown_address_is_refused(address: str) -> None:
    with pytest.raises(StorageError, match="names no storage: expected"):
        open_storage(address)


def test_the_cloud_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "allranks.storage.object", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(StorageError, match=r'pip install "allranks\[cloud\]"'):
        open_storage("s3://bucket/run")


@pytest.mark.needs("obstore")
@pytest.mark.parametrize("address", ["s3://bucket/run", "gs://bucket/run"])
def test_the_cloud_is_opened_without_a_request(address: str) -> None:
    assert open_storage(f"{address}/").url == address


@pytest.mark.needs("obstore")
def test_a_cloud_address_that_lacks_something_says_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(StorageError, match=r"cannot open az://bucket/run: .*Account must be specified.*environment"):
        open_storage("az://bucket/run")


def test_a_local_path_imports_nothing_of_the_cloud() -> None:
    code = "import sys, allranks.storage.detect as d; d.open_storage('x'); print('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"False\n"
