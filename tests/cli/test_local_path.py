"""What takes files and folders of this machine refuses URLs: no folder called ``s3:`` comes to be."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from allranks.cli.local_path import local_path
from allranks.cli.main import main


@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "hf"])
@pytest.mark.parametrize(
    "words",
    [
        ["ckpt", "export", "run", "out", "--config", "{}"],
        ["check", "{}"],
        ["check", ".", "--output-file", "{}"],
        ["check", ".", "--write-baseline", "--baseline", "{}"],
        ["run", "-n", "1", "--log-dir", "{}", "train.py"],
        ["preflight", "{}"],
        ["doctor", "--path", "{}"],
    ],
    ids=" ".join,
)
def test_a_url_is_refused(
    words: list[str], scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main([word.format(f"{scheme}://bucket/out") for word in words])
    assert end.value.code == 2
    assert f"expected a file or folder of this machine, found '{scheme}://bucket/out'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_export_takes_addresses_of_the_cloud_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["ckpt", "export", "run", "hf://bucket/out"])
    assert "expected a file or folder of this machine, found 'hf://bucket/out'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_paths_are_taken_as_they_are() -> None:
    assert local_path("a/b") == Path("a/b")
    assert local_path("file:///a/b%20c") == Path("/a/b c")
    assert local_path("./odd://name") == Path("./odd://name")
    with pytest.raises(argparse.ArgumentTypeError, match="expected file:///path"):
        local_path("file://host/a")
