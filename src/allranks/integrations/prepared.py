"""Keep Accelerate (also in transformers' Trainer) from sharding loaders of allranks over the ranks a second time.

A loader over ``Batches`` or ``BatchSampler`` is prepared as in a single process: batches are put on the device, and
Accelerate knows the last one. Nothing is sharded, whatever ``dispatch_batches`` and ``split_batches`` say. If a program
resumes both with ``skip_first_batches`` and with a state of allranks, the batches are skipped once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from typing import Any

from allranks import agent
from allranks.errors import DataError
from allranks.integrations.dataloader import EpochReader, readers_of

_ALONE = {"num_processes": 1, "process_index": 0, "dispatch_batches": False, "split_batches": False}


def patch_accelerate() -> None:
    """Patch Accelerate as soon as the program imports it."""
    after_import = agent.load("allranks_agent_imports").after_import
    after_import("accelerate.accelerator", _prepare_undivided)
    after_import("accelerate.data_loader", _follow_shards)


def _prepare_undivided(accelerator: Any) -> None:
    theirs = accelerator.prepare_data_loader

    @wraps(theirs)
    def prepare_data_loader(dataloader: Any, *args: Any, **how: Any) -> Any:
        ours = list(readers_of(dataloader))
        return theirs(dataloader, *args, **{**how, **_ALONE} if ours else how)

    accelerator.prepare_data_loader = prepare_data_loader


def _follow_shards(module: Any) -> None:
    shard = module.DataLoaderShard
    theirs = shard.__iter__

    @wraps(theirs)
    def iterate(self: Any) -> Iterator[Any]:
        for reader, around in readers_of(self.base_dataloader):
            # It counts the epochs of this process that ran to their end, and names them.
            self.iteration = reader._epochs.argument_of_set_epoch()
            _cancel_second_skip(reader, [self, *around])
            # One batch is fetched ahead, to know the last.
            reader.set_batches_behind(self.base_dataloader, lambda: int(not self.end_of_dataloader))
        found: Iterator[Any] = theirs(self)
        return found

    shard.__iter__ = iterate


def _cancel_second_skip(reader: EpochReader, skipping: list[Any]) -> None:
    """Cancel Accelerate's skip of first batches if the reader's state already skips them.

    Raises DataError if the numbers of skipped batches differ.
    """
    epoch, first = reader._epochs.next_iteration()
    for one in skipping:
        skip = getattr(one, "skip_batches", 0)
        if not (skip and first):
            continue
        if skip != first:
            raise DataError(
                f"the loop skips {skip} batches of epoch {epoch}, but the state continues after batch {first}.",
                remedy="Load the state of the same checkpoint; or skip no batches: "
                "TrainingArguments(ignore_data_skip=True).",
            )
        one.skip_batches = 0
