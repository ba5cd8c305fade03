"""A project as the rules see it: what running it for four ranks shows, and the texts of its files. Values alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from allranks.check.analysis import Analysis
from allranks.check.roots import Root
from allranks.check.simulate.values import DIFFERS, FILES, RANK
from allranks.check.sources.facts import Facts
from allranks.check.sources.source import place
from allranks.check.traces.compare import Divergence
from allranks.check.traces.nodes import Span
from allranks.check.traces.walk import Step
from allranks.findings import Note, Place

# Which roles come to a side of a condition, in words; roles are rank 0, the first of another node, and two others.
_WHO = {
    "TFFF": ("rank 0", "the other ranks"),
    "FTTT": ("the other ranks", "rank 0"),
    "TTFF": ("the first process of each node", "the other processes of the node"),
    "FFTT": ("the other processes of the node", "the first process of each node"),
}
_SOME = ("some ranks", "the others")
_FOUND = ("a process that finds it true", "a process that does not")
_LONG = 36  # characters of a name that is shown as a whole
_SHOWN = 60  # characters of a condition


def short(name: str) -> str:
    """Return a library's name for a message: of a long one the function, or the class and its method."""
    parts = name.removeprefix("*.").split(".")
    if len(name) <= _LONG or len(parts) < 3:
        return ".".join(parts)
    return ".".join(parts[-2:] if parts[-2][:1].isupper() else parts[-1:])


@dataclass(frozen=True, slots=True)
class Program:
    """``analysis``: what each entry reaches, and where ranks part. ``facts``: what the texts say. ``assumed``: the user
    says that everything runs as several processes."""

    analysis: Analysis
    facts: Facts
    assumed: bool = False

    @property
    def lines(self) -> Mapping[str, list[str]]:
        """The lines of each Python file."""
        return self.facts.lines

    def place(self, path: str, span: Span) -> Place:
        """Return where a span of the parser is."""
        return place(path, self.lines[path], span)

    def way(self, chain: Iterable[Step]) -> tuple[Note, ...]:
        """Return the calls from an entry as notes."""
        return tuple(Note(f"called in {symbol}", self.place(path, span)) for symbol, path, span in chain)

    def sides(self, parted: Divergence) -> tuple[Note, ...]:
        """Return as notes where ranks part, where the collective is, and what each side goes on to call."""
        text = condition(parted)
        there = parted.branch.span
        underlined = there[0] == there[2] and there[3] - there[1] == len(text)
        what = "" if underlined else f": {text}"
        guard = Note(f"the ranks diverge here{what}", self.place(parted.path, there))
        call = parted.call
        where = Note(f"{short(call.name)} is called here", self.place(call.path, call.span))
        own = parted.cause in ("process", "rounds")
        first, others = _FOUND if own else _WHO.get(parted.who.replace("U", "T").replace("D", "T"), _SOME)
        sides = ((first, parted.first), (others, parted.others))
        return guard, where, *(Note(f"{who}: {', '.join(ops) or 'no collective'}") for who, ops in sides)

    def divergences(self, *causes: str) -> Iterator[tuple[Root, Divergence]]:
        """Yield where ranks of entries part that run as several processes, for these causes."""
        for root in self.analysis.roots:
            yield from ((root, one) for one in root.parted if root.active and one.cause in causes)


def condition(parted: Divergence) -> str:
    """Return the condition at which ranks part, as one short line."""
    text = " ".join(parted.branch.text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def computes(parted: Divergence) -> bool:
    """Return whether the collective at which ranks part is a computation that they share: a pass of a wrapped model."""
    op: str = parted.call.entry.op
    return op.endswith((" forward", " backward", " construction", "computation"))


def reads_alike(parted: Divergence) -> bool:
    """Return whether processes may go on alike: to the same calls, as far as known, or as files say that are only read
    (all ranks find the same, unless a disk is not shared)."""
    return parted.first == parted.others or (not parted.taint & DIFFERS & ~(RANK | FILES) and not parted.changes)
