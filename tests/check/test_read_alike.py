"""What is the same for all processes, or of each on purpose: archives, checkpoints, own parts."""

from __future__ import annotations

import textwrap

from allranks.check.engine import Settings, check


def codes(text: str, *select: str) -> list[str]:
    files = {"train.py": textwrap.dedent(text).encode()}
    return [f.code for f in check(files, Settings(select=select)).findings]


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
