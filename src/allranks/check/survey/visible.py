"""Files that let each process see a GPU of its own, which all of them then call cuda:0. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SET = re.compile(r"environ\[[\"']CUDA_VISIBLE_DEVICES[\"']\]\s*=\s*(.+)")
_NAME = re.compile(r"[^\W\d]\w*")
_WHO = re.compile(r"(?i)rank|proc(ess)?_?(id|index)")


def sees_own_gpu(text: str) -> bool:
    """Whether a file sets what is visible to what is made of the rank, or of a variable that is."""
    return any(_WHO.search(one) for told in _SET.findall(text) for one in _made_of(told, text))


def _made_of(told: str, text: str) -> Iterator[str]:
    yield told
    for name in _NAME.findall(told):
        yield from re.findall(rf"^\s*{name}\s*=\s*(.+)$", text, re.MULTILINE)
