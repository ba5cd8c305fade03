"""What rank 0 of RANKS does for one save, in one process: plan all files, hear all acks, write the manifest's bytes.

ckpt_coordination.py RANKS
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

from told import tell

from allranks.arrays.base import DeclaredArray, RankSplit
from allranks.checkpoint import manifest_encode
from allranks.checkpoint.commit_events import PartWritten, SaveId
from allranks.checkpoint.commit_states import CommitSide
from allranks.checkpoint.file_layout import chunk_grain, plan_file_layout
from allranks.checkpoint.manifest import Manifest, StoredFile
from allranks.checkpoint.save_plan import plan_checkpoint_layout, plan_file, total_bytes

LEAVES = 300
os.environ.setdefault("RANK", "0")


def main(ranks: int) -> None:
    holders = tuple((rank,) for rank in range(ranks))
    declared = [
        DeclaredArray(f"state/layers/{n}/weight", (ranks * 4, 1024), "float32", RankSplit((ranks, 1), holders))
        for n in range(LEAVES)
    ]
    before, began = memory(), time.process_time()
    plan = plan_file(declared, rank=0, size=ranks)
    ends = plan_file_layout(declared, plan, grain_bytes=chunk_grain(total_bytes(declared))).ends
    files = plan_checkpoint_layout(declared, size=ranks)
    text = manifest_encode.encode_leaves(files.leaves)
    planned = time.process_time()

    save = SaveId(1, 1000, "0" * 32)
    side = CommitSide(save, 0, ranks)
    # What the store brings: each rank's ack as the bytes that it sent.
    ack = {"name": "rank-00000-of-10000.00000000.safetensors", "bytes": plan.bytes, "ends": ends}
    sent = json.dumps({**ack, "digests": ["0123456789abcdef" * 2 for _ in ends]}).encode()
    for rank in range(ranks):
        side.apply_event(PartWritten(save, rank, json.loads(sent)))
    assert not side.ranks_without_ack
    manifest = Manifest(
        step=1000,
        nonce=save.nonce,
        created="2026-01-01T00:00:00+00:00",
        world_size=ranks,
        integrity="xxh3-128",
        files=tuple(
            StoredFile(f"rank-{rank:05}.safetensors", one["bytes"], tuple(one["ends"]), tuple(one["digests"]))
            for rank, one in sorted(side.acks.items())
        ),
        leaves=files.leaves,
        values={},
        extra=None,
        metrics={},
        versions={},
    )
    data = manifest_encode.encode_manifest(manifest, leaves=text)
    ended = time.process_time()
    tell(plan=planned - began, commit=ended - planned, memory=memory() - before, manifest=len(data))


def memory() -> int:
    """The most bytes that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(int(sys.argv[1]))
