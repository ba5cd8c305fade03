"""The tables, ready to be asked: which entries does a qualified name, or a method of an unknown receiver, match?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeAlias, TypeVar

from allranks.check.sources.globs import matches
from allranks.check.tables.all_effects import EFFECTS
from allranks.check.tables.arrays import COMPILERS, MAKERS
from allranks.check.tables.collectives import COLLECTIVES, Collective
from allranks.check.tables.data import LOADERS, SAMPLERS, UNSPLIT
from allranks.check.tables.devices import BINDERS, CONTEXTS, VISIBLE
from allranks.check.tables.effects import WRITING, Effect
from allranks.check.tables.evidence import SIGNS, TRAINERS, Sign
from allranks.check.tables.gates import NODE_LOCAL_PATHS
from allranks.check.tables.local import LOCAL, LocalQuery
from allranks.check.tables.names import ALIASES
from allranks.check.tables.ranks import QUERIES, RankQuery
from allranks.check.tables.runs import STAMPS
from allranks.check.tables.seeds import ORDERS, SEEDERS, STATES

Entry: TypeAlias = RankQuery | Collective | Effect | LocalQuery
# Receivers of these modules are known well enough: `*.name` never means them.
PLAIN = (
    "logging.",
    "re.",
    "threading.",
    "subprocess.",
    "argparse.ArgumentParser",
    "collections.",
    "queue.",
    "numpy.",
    "pandas.",
)


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

    def tail(self, name: str) -> T | None:
        """Return the entry of a method (or attribute) of whatever class."""
        return self.tails.get(name)

    def method(self, classes: tuple[str, ...], name: str) -> T | None:
        """Return the entry of a method (or attribute) of an instance of ``classes``, nearest first."""
        for owner in classes:
            if (entry := self.exact.get(f"{owner}.{name}")) is not None:
                return entry
        entry = self.tail(name)
        return None if entry is None or any(owner.startswith(PLAIN) for owner in classes) else entry


@dataclass(slots=True)
class Ranks(Table[RankQuery]):
    """Rank queries. What a class keeps for itself is called as the rest, behind an underscore."""

    def named(self, name: str) -> RankQuery | None:
        return self.exact.get(name) or (self.exact.get(name[1:]) if name[:1] == "_" else None)

    def tail(self, name: str) -> RankQuery | None:
        return self.tails.get(name) or (self.tails.get(name[1:]) if name[:1] == "_" else None)


@dataclass(frozen=True, slots=True)
class Apis:
    """All tables. ``ranks`` by form: call, attribute, environment, decorator, name.

    ``words``: what the tables name of a package (``*``: of any receiver, empty: bare); ``several``: of these, what
    shows that there are several processes; ``packages``: whose names the tables know. ``shared``, ``node_local``:
    globs of paths, as the user declares them.
    """

    ranks: dict[str, Ranks]
    collectives: dict[str, Table[Collective]]
    effects: Table[Effect]
    local: Table[LocalQuery]
    signs: Table[Sign]
    words: dict[str, frozenset[str]]
    several: dict[str, frozenset[str]]
    packages: frozenset[str]
    shared: tuple[str, ...] = ()
    node_local: tuple[str, ...] = ()

    def disk(self, path: str) -> frozenset[str]:
        """Return whose disk a path is on, as far as it is known: ``shared`` by all nodes, or each ``node``'s own."""
        if self.shared and _below(self.shared, path):
            return _SHARED
        return _NODE if path.startswith(NODE_LOCAL_PATHS) or _below(self.node_local, path) else _NOWHERE


_SHARED, _NODE, _NOWHERE = frozenset({"shared"}), frozenset({"node"}), frozenset[str]()


def _below(globs: tuple[str, ...], path: str) -> bool:
    """Whether a path, or the beginning of one, is in what the globs name."""
    whole = path.strip("/")
    return bool(globs) and (matches(globs, whole) or matches(globs, f"{whole}/x"))


def apis(
    *,
    predicates: tuple[str, ...] = (),
    collectives: tuple[str, ...] = (),
    shared: tuple[str, ...] = (),
    node_local: tuple[str, ...] = (),
) -> Apis:
    """Return the tables, and what the user declares beside them: rank-0 predicates and collectives, qualified; globs
    of paths."""
    queries = (*QUERIES, *(RankQuery(name, "global", first=True) for name in predicates))
    meetings = (*COLLECTIVES, *(Collective(name, name.rpartition(".")[2]) for name in collectives))
    telling: list[RankQuery] = [q for q in queries if q.kind != "size" and not q.pattern.endswith("is_available")]
    arrays = [LocalQuery(name, "spread") for name in (*COMPILERS, *MAKERS)]
    matter: list[_Patterned] = [*(e for e in EFFECTS if e.kind != "print"), *arrays]
    binders = [Sign(name, "initialise") for name in sorted(BINDERS | CONTEXTS | VISIBLE)]
    binders += [Sign(name, "initialise") for name in sorted(SEEDERS)]
    readers = [Sign(name, "sample") for name in sorted(LOADERS | SAMPLERS | UNSPLIT | ORDERS | STATES)]
    matter += [Sign(f"torch.utils.tensorboard.SummaryWriter.{word}", "sample") for word in WRITING]
    asking = (q for q in telling if q.pattern not in WEAK and q.kind not in ("many", "run"))
    # Who makes one, hands it to somebody who calls its methods.
    trainers = [Sign(name, "initialise") for name in TRAINERS]
    own = [q for q in LOCAL if q.kind in ("temporary", "identity", "lock") or q.pattern in STAMPS]
    return Apis(
        ranks={form: _ranks(q for q in queries if q.form == form) for form in _RANK_FORMS},
        collectives={form: _table(c for c in meetings if c.form == form) for form in ("call", "attribute", "context")},
        effects=_table(EFFECTS),
        local=_table(LOCAL),
        signs=_table(SIGNS),
        words=_words((*telling, *meetings, *matter, *own, *SIGNS, *binders, *readers, *trainers)),
        several=_words((*asking, *meetings, *SIGNS, *trainers)),
        packages=frozenset(pattern.partition(".")[0] for pattern in _patterns(queries, meetings, EFFECTS, LOCAL))
        - _BARELY,
        shared=shared,
        node_local=node_local,
    )


# Attributes and calls that say too little to tell that a program runs as several processes.
WEAK = ("*.rank", "*.local_rank", "torch.cuda.current_device", "socket.gethostname", "platform.node", "os.uname")
_BARELY = frozenset({"ignite", "fvcore"})  # of which the tables know a few effects, and no ranks
_RANK_FORMS = ("call", "attribute", "environment", "decorator", "name")


# Methods that every module and optimizer has, of whatever class.
_EVERYWHERE = ("state_dict", "load_state_dict", "clip_grad_norm_")


# Packages that do little else than what the tables name: whoever imports one is handed objects of it, too.
_SMALL = ("orbax", "deepspeed", "horovod")


def _words(entries: Iterable[_Patterned]) -> dict[str, frozenset[str]]:
    words: dict[str, set[str]] = {}
    for entry in entries:
        owner, dot, word = entry.pattern.rpartition(".")
        package, kind = owner.partition(".")[0], owner.rpartition(".")[2]
        # A name of a package means something where the package is imported, a method where the class is; a bare name
        # everywhere, and so does a method that says enough by itself.
        plain = "_" not in word.strip("_") or word in _EVERYWHERE
        where = "" if not dot else kind if kind[:1].isupper() and plain else package
        words.setdefault(where, set()).add(word)
        if package in _SMALL:
            words.setdefault(package, set()).add(word)
    for alias, meant in ALIASES:
        package, word = alias.partition(".")[0], alias.rpartition(".")[2]
        if "." in alias and meant.rpartition(".")[2] in words.get(meant.partition(".")[0], ()):
            words.setdefault(package, set()).add(word)
    return {where: frozenset(found) for where, found in words.items()}


def _patterns(*tables: Iterable[_Patterned]) -> Iterator[str]:
    return (entry.pattern for table in tables for entry in table)


def _ranks(entries: Iterable[RankQuery]) -> Ranks:
    table = Ranks()
    table.add(entries)
    return table


def _table(entries: Iterable[T]) -> Table[T]:
    table: Table[T] = Table()
    table.add(entries)
    return table
