"""Groups of samples that are padded before they are dealt out."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check


def lines(text: str) -> list[int]:
    """Return where AR304 speaks of padding."""
    sources = {"sampler.py": textwrap.dedent(text).encode()}
    found = check(sources, Settings(select=("AR304",))).findings
    return [f.place.line for f in found if "padded" in f.message]


ENOUGH = {
    "as many times as it takes": """
        import torch.distributed as dist
        def mine(groups):
            rank, count = dist.get_rank(), dist.get_world_size()
            chosen = []
            for rows in groups:
                rows = rows + (rows * count)[: -len(rows) % count]
                chosen.append(rows[rank::count])
            return chosen
        """,
    "all data at once": """
        import torch.distributed as dist
        def mine(rows):
            rank, count = dist.get_rank(), dist.get_world_size()
            rows += rows[: -len(rows) % count]
            return rows[rank::count]
        """,
    "small groups are looked at first": """
        import torch.distributed as dist
        def mine(groups):
            rank, count = dist.get_rank(), dist.get_world_size()
            chosen = []
            for rows in groups:
                if len(rows) < count:
                    continue
                rows = rows + rows[: -len(rows) % count]
                chosen.append(rows[rank::count])
            return chosen
        """,
}


@pytest.mark.parametrize("what", ENOUGH)
def test_padding_that_is_enough_is_silent(what: str) -> None:
    """Repeated, or of all data at once."""
    assert lines(ENOUGH[what]) == []
