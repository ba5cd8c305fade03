"""The tables, ready to be asked: which entries does a qualified name, or a method of an unknown receiver, match?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeAlias, TypeVar

from allranks.check.tables.collectives import COLLECTIVES, Collective
from allranks.check.tables.effects import EFFECTS, Effect
from allranks.check.tables.evidence import SIGNS, Sign
from allranks.check.tables.local import LOCAL, LocalQuery
from allranks.check.tables.ranks import QUERIES, RankQuery

Entry: TypeAlias = RankQuery | Collective | Effect | LocalQuery
# Receivers of these modules are known well enough: `*.name` never means them.
_PLAIN = ("logging.", "re.", "threading.", "subprocess.", "argparse.", "collections.", "queue.", "numpy.", "pandas.")


class _Patterned(Protocol):
    @property
    def pattern(self) -> str: ...


T = TypeVar("T", bound=_Patterned)


@dataclass(slots=True)
class Table(Generic[T]):
    """Entries by pattern."""

    exact: dict[str, T] = field(default_factory=dict)
    tails: dict[str, T] = field(default_factory=dict)

    def add(self, entries: Iterable[T]) -> None:
        for entry in entries:
            if entry.pattern.startswith("*."):
                self.tails[entry.pattern[2:]] = entry
            else:
                self.exact[entry.pattern] = entry

    def named(self, name: str) -> T | None:
        return self.exact.get(name)

    def method(self, classes: tuple[str, ...], name: str) -> T | None:
        """Return the entry of a method (or attribute) of an instance of ``classes``, nearest first."""
        for owner in classes:
            if (entry := self.exact.get(f"{owner}.{name}")) is not None:
                return entry
        return None if any(owner.startswith(_PLAIN) for owner in classes) else self.tails.get(name)


@dataclass(frozen=True, slots=True)
class Apis:
    """All tables. ``ranks`` by form: call, attribute, environment, decorator, name. ``words``: what the
    tables name of a package (``*``: of any receiver, empty: bare)."""

    ranks: dict[str, Table[RankQuery]]
    collectives: dict[str, Table[Collective]]
    effects: Table[Effect]
    local: Table[LocalQuery]
    signs: Table[Sign]
    words: dict[str, frozenset[str]]


def apis(*, predicates: tuple[str, ...] = (), collectives: tuple[str, ...] = ()) -> Apis:
    """Return the tables, and what the user declares beside them: rank-0 predicates and collectives, qualified."""
    queries = (*QUERIES, *(RankQuery(name, "global", first=True) for name in predicates))
    meetings = (*COLLECTIVES, *(Collective(name, name.rpartition(".")[2]) for name in collectives))
    ranks = {form: _table(q for q in queries if q.form == form) for form in _RANK_FORMS}
    meet = {form: _table(c for c in meetings if c.form == form) for form in ("call", "attribute", "context")}
    matter = [e for e in EFFECTS if e.kind != "print"]
    ranks_alone = [q for q in queries if q.kind != "size" and not q.pattern.endswith("is_available")]
    entries: tuple[_Patterned, ...] = (*ranks_alone, *meetings, *matter, *SIGNS)
    words: dict[str, set[str]] = {}
    for entry in entries:
        owner, dot, word = entry.pattern.rpartition(".")
        package, kind = owner.partition(".")[0], owner.rpartition(".")[2]
        # A name of a package means something where the package is imported, a method where the class is; a bare name
        # everywhere, and so does a method that says enough by itself.
        where = "" if not dot else kind if kind[:1].isupper() and "_" not in word.strip("_") else package
        words.setdefault(where, set()).add(word)
    return Apis(
        ranks,
        meet,
        _table(EFFECTS),
        _table(LOCAL),
        _table(SIGNS),
        {package: frozenset(tails) for package, tails in words.items()},
    )


_RANK_FORMS = ("call", "attribute", "environment", "decorator", "name")


def _table(entries: Iterable[T]) -> Table[T]:
    table: Table[T] = Table()
    table.add(entries)
    return table
