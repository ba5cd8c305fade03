"""Names are read back as they are written, and nobody else's is taken for ours."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.checkpoint import paths


@settings(deadline=None)
@given(
    st.integers(0, 10**17), st.integers(0, 200_000), st.integers(1, 200_000), st.text("0123456789abcdef", min_size=32)
)
def test_names_are_read_back(step: int, rank: int, more: int, nonce: str) -> None:
    assert paths.parse_step_folder(paths.step_folder(step)) == step
    assert paths.manifest_path(step) == f"{paths.step_folder(step)}/manifest.json"
    name = paths.shard_file_name(rank, rank + more, nonce)
    assert paths.parse_shard_file(name) == paths.ShardFile(rank, rank + more, nonce[:8])
    folder, fence = paths.fence_path(step).split("/")
    assert (folder, paths.parse_fence_name(fence)) == (paths.FENCES, step)


def test_names_are_those_of_the_format() -> None:
    """What docs/format.md promises to readers in other languages."""
    assert paths.step_folder(1200) == "checkpoint-1200"
    assert paths.shard_file_name(3, 4, "ab12cd34" * 4) == "rank-00003-of-00004.ab12cd34.safetensors"
    assert paths.fence_path(7) == "fence/00000007.json"


@pytest.mark.parametrize(
    "name",
    [
        *("checkpoint-007", "checkpoint--1", "checkpoint-", "checkpoint-1 ", "checkpoint-1\n", "checkpoint-1.tmp"),
        *("Checkpoint-1", "checkpoint-1e3", "checkpoint-٣", "checkpoint-" + "9" * 30, "xcheckpoint-1", ""),
    ],
)
def test_a_foreign_folder_is_no_step(name: str) -> None:
    assert paths.parse_step_folder(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "rank-00004-of-00004.ab12cd34.safetensors",
        "rank-3-of-4.ab12cd34.safetensors",
        "rank-00003-of-00004.AB12CD34.safetensors",
        "rank-000003-of-00004.ab12cd34.safetensors",
        "rank-00003-of-00004.ab12cd34.safetensors.tmp",
        "rank-00003-of-00004.ab12cd34.safetensors\n",
    ],
)
def test_a_foreign_file_is_no_shard_file(name: str) -> None:
    assert paths.parse_shard_file(name) is None


@pytest.mark.parametrize("name", ["7.json", "000000007.json", "00000007.json.tmp", "00000007.json\n", "0000000a.json"])
def test_a_foreign_file_is_no_fence(name: str) -> None:
    assert paths.parse_fence_name(name) is None
