"""What is the same for all processes, or of each on purpose: archives, checkpoints, own parts."""

from __future__ import annotations

import textwrap

from allranks.check.engine import Settings, check


def codes(text: str, *select: str) -> list[str]:
    files = {"train.py": textwrap.dedent(text).encode()}
    return [f.code for f in check(files, Settings(select=select)).findings]


PIPELINE = """
    import jax
    import numpy as np
    import tensorflow as tf
    def data(files, some, size, seed):
        if some:
            rows = tf.data.TFRecordDataset(files).shard(jax.process_count(), jax.process_index())
            rows = rows.repeat().shuffle(size, seed=seed)
        else:
            rows = tf.data.TFRecordDataset(files)
            rows = rows.shard(jax.process_count(), jax.process_index())
        return rows
    """
ORDER = """
    import jax
    import numpy as np
    def data(files):
        rng = np.random.default_rng(jax.process_index())
        rng.shuffle(files)
        return files[jax.process_index() :: jax.process_count()]
    """


def test_who_was_dealt_his_part_before_shuffles_that_alone() -> None:
    """A pipeline that was split is no random state of the process; a generator that holds its number is one."""
    assert codes(PIPELINE, "AR308") == []
    assert codes(ORDER, "AR308") == ["AR308"]


ARCHIVE = """
    import pathlib
    import zipfile
    import torch.distributed as dist
    def part(name):
        root = {root}
        rows = list(root.iterdir())
        return rows[dist.get_rank() :: dist.get_world_size()]
    """


def test_an_archive_has_one_order_for_all() -> None:
    """Files are listed in no fixed order, the members of an archive in its own."""
    assert codes(ARCHIVE.format(root="zipfile.Path(name)"), "AR307") == []
    assert codes(ARCHIVE.format(root="pathlib.Path(name)"), "AR307") == ["AR307"]


WRAPS = """
    {imports}
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    def main(model):
        {joins}
        return FSDP(model)
    main(None)
    """


def test_flashy_joins_the_processes() -> None:
    """flashy.distrib.init makes the process group where there are several."""
    assert codes(WRAPS.format(imports="import flashy", joins="flashy.distrib.init()"), "AR601") == []
    assert codes(WRAPS.format(imports="import flask", joins="flask.init()"), "AR601") == ["AR601"]


MEAN = """
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler
    def average(iterator):
        total, number = next(iterator), 1
        with torch.no_grad():
            for {item} in iterator:
                total += {item}["loss"]
                number += 1
        return total / number
    def main(model, rows):
        val_loader = DataLoader(rows, 8, sampler=DistributedSampler(rows))
        return average(iter(val_loader))
    """


def test_the_mean_of_checkpoints_is_that_of_no_part_of_the_data() -> None:
    """What is averaged of models lies in files that all processes read."""
    assert codes(MEAN.format(item="state_dict"), "AR310") == []
    assert codes(MEAN.format(item="batch"), "AR310") == ["AR310"]
