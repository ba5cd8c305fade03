"""Checkpoints in a bucket: the whole way, with retention and fences, through a service that fails now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from proxy import Proxy, proxy_before

from allranks.checkpoint.checkpointer import Checkpointer
from allranks.errors import Damaged, DoesNotFit, Fenced, SaveFailed, StepExists
from allranks.storage.base import BLOCK, Storage
from allranks.world.detect import single_world

pytestmark = pytest.mark.needs("obstore", "moto")
Opener = Callable[..., Storage]


def state_at(step: int) -> dict[str, Any]:
    """Two blocks and some, so that an upload has parts."""
    big = np.random.default_rng(step).integers(0, 255, 2 * BLOCK + 777, np.uint8)
    return {"big": big, "small": np.full((3, 2), step, np.float32), "name": f"at {step}"}


def blank() -> dict[str, Any]:
    return {"big": np.zeros(2 * BLOCK + 777, np.uint8), "small": np.zeros((3, 2), np.float32), "name": ""}


def assert_is(restored: Any, step: int) -> None:
    assert restored is not None
    expected = state_at(step)
    assert restored[1] == step
    assert restored[0]["name"] == expected["name"]
    assert (restored[0]["big"] == expected["big"]).all()
    assert (restored[0]["small"] == expected["small"]).all()


@pytest.fixture
def proxy(s3_port: int) -> Iterator[Proxy]:
    with proxy_before(s3_port) as proxy:
        yield proxy


def test_a_training_in_a_bucket(open_s3: Opener) -> None:
    """Saves by cadence, retention, a second job that goes on, an abandoned branch: as in a directory."""
    storage = open_s3()
    with Checkpointer(storage, single_world(), every=2, keep_last=2) as ckpt:
        assert ckpt.restore(blank()) is None
        for step in range(1, 8):
            ckpt.maybe_save(step, state_at(step), extra={"at": step}, metrics={"loss": step / 2})
    assert ckpt.steps() == (6, 7)
    folders = {entry.name for entry in storage.list("")}
    assert folders == {"checkpoint-6", "checkpoint-7", "fence"}

    with Checkpointer(open_s3(prefix=storage.url.removeprefix("s3://runs/")), single_world()) as again:
        restored = again.restore(blank())
        assert_is(restored, 7)
        assert restored is not None
        assert (restored.extra, restored.metrics) == ({"at": 7}, {"loss": 3.5})
        with pytest.raises(StepExists):
            again.save(7, state_at(7))
        assert_is(again.restore(blank(), step=6), 6)
        again.save(7, {**state_at(7), "name": "again"}, block=True)
        newest = again.restore(blank())
        assert newest is not None
        assert newest[0]["name"] == "again"
        with pytest.raises(DoesNotFit, match="1 missing"):
            again.restore({**blank(), "more": np.zeros(1)})


def test_a_bucket_has_one_owner(open_s3: Opener) -> None:
    """A second job on this machine is refused; one that takes over goes on, and the first can publish no more."""
    storage = open_s3()
    first = Checkpointer(storage, single_world())
    first.save(1, state_at(1), block=True)
    second = Checkpointer(open_s3(prefix=storage.url.removeprefix("s3://runs/")), single_world(), take_over=True)
    with pytest.raises((Fenced, SaveFailed), match="took over the run"):
        first.save(2, state_at(2), block=True)
    assert second.steps() == (1,)
    second.save(2, state_at(3), block=True)
    second.close()
    first.close()
    with Checkpointer(storage, single_world()) as third:
        assert third.steps() == (1, 2)


def test_a_service_that_answers_503_now_and_then(open_s3: Opener, proxy: Proxy) -> None:
    """On uploads, parts, manifests, reads and lists, and with answers that are lost: every step is whole."""
    storage = open_s3(proxy.port, timeout_s=5.0)
    with Checkpointer(storage, single_world(), keep_last=2) as ckpt:
        for step in (1, 2, 3):
            proxy.fail("POST", "503", part="uploads=", times=1)
            proxy.fail("PUT", "503", part="partNumber", times=2)
            proxy.fail("PUT", "lose the answer", part="partNumber", times=1)
            proxy.fail("PUT", "lose the answer", part="manifest.json", times=1)
            proxy.fail("POST", "lose the answer", part="uploadId", times=1)
            proxy.fail("GET", "503", part="fence", times=1)
            ckpt.save(step, state_at(step))
        ckpt.wait()
        assert ckpt.steps() == (2, 3)
        proxy.fail("GET", "503", part="safetensors", times=2)
        proxy.fail("GET", "half an answer", part="safetensors", times=1)
        assert_is(ckpt.restore(blank()), 3)


def test_a_service_that_refuses_fails_the_save_and_no_more(open_s3: Opener, proxy: Proxy) -> None:
    """The step before is the newest, nothing of the failed one is left, and the next save works."""
    storage = open_s3(proxy.port, retries=0)
    with Checkpointer(storage, single_world()) as ckpt:
        ckpt.save(1, state_at(1), block=True)
        proxy.fail("PUT", "403", part="partNumber", times=100)
        with pytest.raises(SaveFailed, match=r"save of step 2 stopped: .*permission denied"):
            ckpt.save(2, state_at(2), block=True)
        assert [entry.name for entry in storage.list("checkpoint-2")] == []
        proxy._plans.clear()
        ckpt.save(3, state_at(3), block=True)
        assert ckpt.steps() == (1, 3)
        assert_is(ckpt.restore(blank()), 3)


def test_damage_in_a_bucket_is_seen(open_s3: Opener) -> None:
    """An object whose bytes were changed there is named with its leaf, and the step before is taken on request."""
    storage = open_s3()
    with Checkpointer(storage, single_world()) as ckpt:
        for step in (1, 2):
            ckpt.save(step, state_at(step), block=True)
        [name] = [e.name for e in storage.list("checkpoint-2") if e.name.endswith(".safetensors")]
        data = bytearray(storage.get(f"checkpoint-2/{name}"))
        data[BLOCK + 99] ^= 4
        storage.put(f"checkpoint-2/{name}", bytes(data), replace=True)
        with pytest.raises(Damaged, match=f"{name}, of leaf 'big', are not what was saved"):
            ckpt.restore(blank())
        assert_is(ckpt.restore(blank(), fallback=True), 1)


def test_retention_leaves_objects_of_others(open_s3: Opener) -> None:
    """Below a step's prefix, below a longer one, beside the run, and a manifest of another program."""
    storage = open_s3()
    names = [
        *("checkpoint-1/notes.txt", "checkpoint-1/eval/rank-00000-of-00001.0badcafe.safetensors"),
        *("checkpoint-10/thesis.tex", "checkpoint-1x/manifest.json", "memory.json", "fence/notes.txt"),
    ]
    foreign = dict.fromkeys(names, b"mine")
    for path, data in foreign.items():
        storage.put(path, data)
    with Checkpointer(storage, single_world(), keep_last=1) as ckpt:
        for step in (1, 2, 3):
            ckpt.save(step, {"w": np.full(3, step)}, block=True)
    assert {path: storage.get(path) for path in foreign} == foreign
    assert {entry.name for entry in storage.list("checkpoint-1")} == {"notes.txt", "eval"}
    assert storage.list("checkpoint-2") == ()
