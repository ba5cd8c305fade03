"""Pairs of programs that look alike: the second has the fault."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

from allranks.check.engine import Settings, check

HEAD = """\
import os
import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
"""


class Pair(NamedTuple):
    """Two programs behind `HEAD`: right code, and the bug next to it, which has this code."""

    good: str
    bad: str
    code: str


def codes(text: str) -> list[str]:
    """Return the codes about effects that are found, in order of place."""
    outcome = check({"train.py": (HEAD + textwrap.dedent(text)).encode()}, Settings())
    return [finding.code for finding in outcome.findings if finding.code.startswith("AR10")]
