"""The collectives of a compiled program, read from XLA's text of it, in the order in which they are scheduled."""

from __future__ import annotations

import re
from collections.abc import Iterator

_NAMES = "all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|collective-(?:permute|broadcast)|send|recv"
# ROOT tmp_3 = f32[4,2]{1,0} all-reduce-start(f32[4,2]{1,0} tmp_2), channel_id=1, replica_groups={{0,1}}, to_apply=
_COLLECTIVE = re.compile(rf"= (?P<shape>.+?) (?P<name>{_NAMES})(?:-start)?\((?P<rest>.*)$")
_AMONG = re.compile(r"(?:replica_groups|source_target_pairs)=(\{\{.*?\}\}|\{\}|\[[^ ]*?\](?:T\([\d,]*\))?(?=[, ]|$))")
_REDUCTION = re.compile(r"ROOT \S+ = \S+ (?P<name>[\w-]+)\(")
_LAYOUT = re.compile(r"\{[\d,]*(?::[^{}]*)?\}")


def collectives(text: str) -> list[str]:
    """Return ``all-reduce add f32[4,2] among {{0,1}}`` for every collective of a module.

    ``text`` is as HloPrintOptions.fingerprint() prints it: what a reduction applies stands below it.
    """
    lines = iter(text.splitlines())
    return [_in_words(found, lines) for line in lines if (found := _COLLECTIVE.search(line))]


def _in_words(found: re.Match[str], below: Iterator[str]) -> str:
    among = _AMONG.search(found["rest"])
    words = [found["name"], _reduction(below) if "to_apply=" in found["rest"] else "", _LAYOUT.sub("", found["shape"])]
    return " ".join([*filter(None, words), *(["among", among[1]] if among else [])])


def _reduction(below: Iterator[str]) -> str:
    """Return the name of the last operation of what a reduction applies."""
    for line in below:
        if root := _REDUCTION.search(line):
            return root["name"]
    return ""
