"""Read the collectives of a compiled program from XLA's text, in the order in which XLA has scheduled them."""

from __future__ import annotations

import re
from collections.abc import Iterator

# ROOT tmp_3 = f32[4,2]{1,0} all-reduce-start(f32[4,2]{1,0} tmp_2), channel_id=1, replica_groups={{0,1}}, to_apply=
_COLLECTIVE = re.compile(
    r" (all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|collective-(?:permute|broadcast)|send|recv)"
    r"(?:-start)?\("
)
_AMONG = re.compile(r"(?:replica_groups|source_target_pairs)=(\{\{.*?\}\}|\{\}|\[\S+?\](?:T\([\d,]*\))?(?=[, ]|$))")
_ROOT = re.compile(r"ROOT \S+ = \S+ ([\w-]+)\(")
_LAYOUT = re.compile(r"\{[\d,]*(?::[^{}]*)?\}")


def collectives_of_module(text: str) -> list[str]:
    """Return a description of every collective in a module, e.g. ``all-reduce add f32[4,2] among {{0,1}}``.

    ``text`` is the module as HloPrintOptions.fingerprint() prints it. There, the operation of a reduction is printed
    below the reduction.
    """
    lines = iter(text.splitlines())
    return [_describe_collective(line, found, lines) for line in lines if (found := _COLLECTIVE.search(line))]


def _describe_collective(line: str, found: re.Match[str], below: Iterator[str]) -> str:
    shape = _LAYOUT.sub("", line[: found.start()].partition("= ")[2])
    among = _AMONG.search(line, found.end())
    words = [
        found[1],
        _reduction_name(below) if "to_apply=" in line else "",
        shape,
        f"among {among[1]}" if among else "",
    ]
    return " ".join(filter(None, words))


def _reduction_name(below: Iterator[str]) -> str:
    """Return the name of the operation that a reduction applies last; ``below`` are the lines after the reduction."""
    return next((root[1] for line in below if (root := _ROOT.search(line))), "")
