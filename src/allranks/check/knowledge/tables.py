"""Read the tables, and look up a name in them."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

from allranks.check.sources.globs import matches

_COMMANDS = re.compile(r"&&|\|\||;|\||\n")
_LEADING = re.compile(r"^((sudo|env|exec|\w+=\S*)\s+)*(\S*/)?")  # what stands before the name of a program
Condition: TypeAlias = tuple[int | str, object]  # position or keyword of an argument, and its constant


@dataclass(frozen=True, slots=True)
class Collective:
    """A call that every process of a group must make, in the same order.

    - ``op``: two roles agree if their sequences of ops are equal.
    - ``group``: the parameter that names a sub-group (keyword, or position from 0). Without it, all take part.
    - ``own``: what it returns belongs to this process. Otherwise it is the same on every rank.
    - ``fills``: positions of arguments that become the same on every rank.
    - ``unless``: an argument and its constant with which the call is no collective. ``only_if``: it needs one of these.
    - ``hidden``: the name does not say that the call waits for others. ``sharded``: it waits only where a model is in
      parts (FSDP, ZeRO). ``wrapped``: it waits only where a model is wrapped (DDP, FSDP).
    """

    name: str
    op: str
    group: tuple[int | str, ...] = ()
    own: bool = False
    fills: tuple[int, ...] = ()
    unless: tuple[Condition, ...] = ()
    only_if: tuple[Condition, ...] = ()
    hidden: bool = False
    sharded: bool = False
    wrapped: bool = False


@dataclass(frozen=True, slots=True)
class Effect:
    """A call that changes what other processes see.

    - ``path``: parameters (position, or keyword) of which the first that is given names what changes. ``receiver``: the
      receiver is the path (``Path(...).write_text``).
    - ``modes``: it is an effect only if the argument of ``open`` holds one of these letters.
    - ``unless``: an argument and its constant with which nothing happens; the constant ``any`` is every value.
      ``only_if``: nothing happens without this keyword, or if it is false.
    """

    name: str
    kind: str
    path: tuple[int | str, ...] = ()
    receiver: bool = False
    modes: str = ""
    unless: tuple[Condition, ...] = ()
    only_if: str = ""


@dataclass(frozen=True, slots=True)
class RankQuery:
    """A value that says which process this is. ``kind``: global, local, node, group, size, many (a truth: there are
    several), run (an experiment's run). ``which``: "first" or "last" for a truth, empty for a number."""

    kind: str
    which: str = ""


@dataclass(slots=True, eq=False)
class Knowledge:
    """All tables. ``effects``, ``collectives`` and ``local`` have names, and ``*.name`` for methods of any receiver."""

    aliases: Mapping[str, str]
    effects: dict[str, Effect]
    collectives: dict[str, dict[str, Collective]]  # by form: call, attribute, context
    ranks: dict[str, dict[str, RankQuery]]  # by form: call, attribute, environment, decorator
    local: dict[str, str]  # name -> kind
    signs: Mapping[str, frozenset[str]]
    classes: Mapping[str, Mapping[str, Any]]
    careful: frozenset[str]
    installed: frozenset[str]
    node_local: tuple[str, ...]
    private: tuple[str, ...]
    locks: tuple[str, ...]
    names: Mapping[str, tuple[tuple[re.Pattern[str], Any], ...]]
    modules: frozenset[str]  # what the names of functions and classes in the tables begin with
    renamed: frozenset[str]  # last parts of names that are documented under another last part
    declared: Mapping[str, RankQuery | Collective] = field(default_factory=dict)
    declared_shared: tuple[str, ...] = ()
    declared_local: tuple[str, ...] = ()
    _documented: dict[str, str] = field(default_factory=dict)
    _starts: frozenset[str] = frozenset()

    def documented(self, name: str) -> str:
        """Return the name that the tables use: ``pytorch_lightning.Trainer`` is ``lightning.pytorch.Trainer``."""
        if name.partition(".")[0] not in self._starts:
            return name
        found = self._documented.get(name)
        if found is None:
            found = self._documented[name] = self._document(name)
        return found

    def _document(self, name: str) -> str:
        prefix = name
        while prefix:
            if (instead := self.aliases.get(prefix)) is not None:
                return self.documented(instead + name[len(prefix) :])
            prefix = prefix.rpartition(".")[0]
        return name

    def is_known(self, name: str) -> bool:
        """Return whether a name of a package is one that the tables speak of."""
        return name in self.modules or name.partition(".")[0] in self.installed

    def lineage(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return classes of libraries by their documented names, each with the base that ``[bases]`` has for it."""
        found: list[str] = []
        for name in map(self.documented, names):
            found += [name, *(base for start, base in self.classes["bases"].items() if name.startswith(start))]
        return tuple(dict.fromkeys(found))

    def named(self, table: str, name: str) -> Any:
        """Return what ``user_names.toml`` says about a name in one of its tables; None if nothing."""
        for pattern, meaning in self.names[table]:
            if pattern.fullmatch(name):
                return meaning
        return None

    def telling(self) -> frozenset[str]:
        """Return the last parts of the names of effects, of collectives and of what shows several processes.

        A function without any of these words does nothing itself that other processes notice.
        """
        effects = (name for name, row in self.effects.items() if row.kind != "print")
        signs = (name for kind in ("initialise", "wrap", "sample", "launch") for name in self.signs[kind])
        return self.names_of_collectives() | {name.rpartition(".")[2] for name in (*effects, *signs)}

    def names_of_collectives(self) -> frozenset[str]:
        """Return the last parts of the names of collectives."""
        return frozenset(name.rpartition(".")[2] for form in self.collectives.values() for name in form)

    def says(self, meaning: str, text: str) -> bool:
        """Return whether a pattern of ``[program]`` or ``[state]`` is found in a name."""
        return any(told == meaning and pattern.search(text) for pattern, told in self.names["program"])

    def is_node_local(self, path: str) -> bool:
        """Return whether a path is in a folder that each node has for itself."""
        if _is_below(self.declared_shared, path):
            return False
        known = f"{path.lower()}/".startswith(tuple(f"{folder}/" for folder in self.node_local))
        return known or _is_below(self.declared_local, path)

    def rank(self, form: str, name: str) -> RankQuery | None:
        """Return the rank query that a library's name is."""
        return self.ranks[form].get(name)

    def query(self, form: str, name: str, last: str) -> RankQuery | None:
        """Return the rank query that a name is, or a method or attribute called ``last`` of whatever object."""
        table = self.ranks[form]
        return table.get(name) or table.get(f"*.{last}") or table.get(f"*.{last.removeprefix('_')}")

    def declared_as(self, symbol: str) -> RankQuery | Collective | None:
        """Return what the user declares a function of the project to be, by its qualified name or the end of it."""
        for name, entry in self.declared.items():
            if symbol == name or symbol.endswith(f".{name}"):
                return entry
        return None

    def command(self, text: str) -> str:
        """Return the kind of effect that a command of a shell has; empty if none is known."""
        for part in _COMMANDS.split(text):
            command = _LEADING.sub("", part.strip())
            kinds = [kind for pattern, kind in self.names["command"] if pattern.match(command)]
            if kinds and "nothing" not in kinds:
                return str(kinds[0])
        return ""

    @cache  # noqa: B019 - there is one object of this class
    def rank_called(self, name: str) -> RankQuery | None:
        """Return what a variable, attribute or function of the project's own is by its name, if it is about ranks."""
        found: RankQuery | None = self.named("rank", name.lstrip("_"))
        return found


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table as the arguments of its class: lists as tuples, and "none" in a condition as None."""
    return {name: _field(value) if isinstance(value, list) else value for name, value in row.items()}


def _field(values: list[Any]) -> tuple[Any, ...]:
    return tuple((one[0], None if one[1] == "none" else one[1]) if isinstance(one, list) else one for one in values)


def _patterns(section: Mapping[str, Iterable[str]]) -> tuple[tuple[re.Pattern[str], Any], ...]:
    return tuple(
        (re.compile(pattern, re.IGNORECASE), meaning) for meaning, patterns in section.items() for pattern in patterns
    )


@cache
def read(name: str) -> dict[str, Any]:
    """Return a file of this package."""
    return tomllib.loads(files(__package__).joinpath(name).read_text("utf-8"))


def declare(
    predicates: Iterable[str] = (),
    collectives: Iterable[str] = (),
    shared: Iterable[str] = (),
    node_local: Iterable[str] = (),
) -> Knowledge:
    """Return the tables with what a user declares: functions that say "I am rank 0" and functions that are collectives,
    by qualified names; globs of paths that all nodes share, or that each node has for itself."""
    known = load()
    first = {name: RankQuery("global", "first") for name in predicates}
    waits = {name: Collective(name, name.rpartition(".")[2]) for name in collectives}
    return replace(
        known,
        ranks={**known.ranks, "call": {**known.ranks["call"], **first}},
        collectives={**known.collectives, "call": {**known.collectives["call"], **waits}},
        declared={**first, **waits},
        declared_shared=tuple(shared),
        declared_local=tuple(node_local),
    )


def _is_below(globs: tuple[str, ...], path: str) -> bool:
    """Whether a path, or the beginning of one, is in what globs name."""
    whole = path.strip("/")
    return bool(globs) and (matches(globs, whole) or matches(globs, f"{whole}/x"))


@cache
def load() -> Knowledge:
    """Return the tables of this package."""
    user, classes = read("user_names.toml"), read("classes.toml")
    ranks: dict[str, dict[str, RankQuery]] = {}
    for title, forms in read("ranks.toml").items():
        kind, _, which = title.partition(" ")
        for form, names in forms.items():
            ranks.setdefault(form, {}).update({name: RankQuery(kind, which) for name in names})
    aliases = read("aliases.toml")
    last = {name.rpartition(".")[2]: meant.rpartition(".")[2] for name, meant in aliases.items()}
    called = (
        *((p, RankQuery(kind, "first")) for p, kind in _patterns(user["rank"]["first"])),
        *((p, RankQuery(kind)) for p, kind in _patterns(user["rank"]["number"])),
    )
    known = Knowledge(
        aliases=aliases,
        effects={
            n: Effect(n, kind, **_row(row)) for kind, rows in read("effects.toml").items() for n, row in rows.items()
        },
        collectives={
            form: {name: Collective(name, **_row(row)) for name, row in rows.items()}
            for form, rows in read("collectives.toml").items()
        },
        ranks=ranks,
        local={name: kind for kind, names in read("local.toml").items() for name in names},
        signs={kind: frozenset(names) for kind, names in read("signs.toml").items()},
        classes=classes,
        careful=frozenset(user["package"]["careful"]),
        installed=frozenset(user["package"]["installed"]),
        node_local=tuple(user["path"]["node_local"]),
        private=tuple(user["path"]["private"]),
        locks=tuple(user["path"]["lock"]),
        names={
            "rank": called,
            "decorator": _patterns(user["decorator"]),
            "command": _patterns(read("commands.toml")),
            "context": _patterns(user["context"]),
            "agreed": _patterns({"variable": user["agrees"]["variable"]}),
            "agrees": _patterns({"function": user["agrees"]["function"]}),
            "joins": _patterns({"call": user["joins"]["call"]}),
            "effect": _patterns(user["effect"]),
            "settings": _patterns({"of": user["settings"]["of"]}),
            "rows": _patterns({"of": user["rows"]["of"]}),
            "program": _patterns({**user["program"], **user["state"]}),
        },
        modules=frozenset(),
        renamed=frozenset(name for name, meant in last.items() if name != meant),
        _starts=frozenset(name.partition(".")[0] for name in aliases),
    )
    return replace(known, modules=frozenset(_modules(known)))


def _modules(known: Knowledge) -> Iterator[str]:
    tables: tuple[Iterable[str], ...] = (*known.collectives.values(), *known.ranks.values(), known.effects, known.local)
    for name in itertools.chain(*tables, *known.signs.values()):
        while name := name.rpartition(".")[0]:
            yield name
