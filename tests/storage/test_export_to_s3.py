"""``allranks ckpt export`` into a bucket: the same files as in a folder, the last one last."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from allranks.checkpoint.checkpointer import Checkpointer
from allranks.cli.main import main
from allranks.storage.base import BLOCK, Storage
from allranks.world.detect import single_world

pytestmark = pytest.mark.needs("obstore", "moto")


@pytest.fixture
def bucket(s3_port: int, open_s3: Callable[..., Storage], monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A fresh prefix of the bucket, which the command reaches by the environment."""
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    return open_s3(prefix=uuid.uuid4().hex)


def test_an_export_goes_into_a_bucket(
    bucket: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In parts where it is large; what is there is in the way, unless it is to be replaced."""
    monkeypatch.chdir(tmp_path)
    big = np.random.default_rng(0).integers(0, 255, 2 * BLOCK + 777, np.uint8)
    with Checkpointer("run", single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, {"model": {"big": big, "small": np.ones(3, np.float32)}}, extra={"config": {"a": 1}}, block=True)
    words = ["ckpt", "export", "run", f"{bucket.url}/out"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert f"  {bucket.url}/out/model.safetensors" in out
    found = load(bucket.get("out/model.safetensors"))
    assert (found["model.big"] == big).all()
    assert bucket.get("out/config.json") == b'{\n  "a": 1\n}'
    assert main(words) != 0
    assert "already" in capsys.readouterr().err
    assert main([*words, "--force", "--prefix", "model/small"]) == 0
    assert list(load(bucket.get("out/model.safetensors"))) == ["model.small"]
    assert main(["ckpt", "export", "run", f"{bucket.url}/d", "--to", "dcp"]) == 0
    assert {entry.name for entry in bucket.list("d")} == {".metadata", "__0_0.distcp"}
    assert main(["ckpt", "export", "run", f"{bucket.url}/m.pt", "--to", "pt"]) == 0
    assert bucket.size("m.pt")
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    with pytest.raises(SystemExit):
        main(["ckpt", "export", "run", "s3://bucket"])
    assert "expected s3://bucket/name, found" in capsys.readouterr().err
