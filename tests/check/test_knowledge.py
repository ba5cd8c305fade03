"""The tables of what libraries' names mean: a program made for each row gives the call that the row describes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from allranks.check.knowledge.tables import Collective, Condition, Effect, load
from allranks.check.project.modules import Modules
from allranks.check.simulate.simulator import Simulator
from allranks.check.traces.nodes import WAITED
from allranks.check.traces.walk import Reach, walk

TABLES = load()
# Which roles (rank 0, the first of another node, two others) a guard lets through for certain, by what it asks for.
GUARDED = {"global": 0b0001, "local": 0b0011}


def reached(program: str) -> list[Reach]:
    """Return what a program reaches, in a project that wraps models and keeps them in parts."""
    trees = {"train.py": ast.parse(program)}
    modules = Modules.of({"train.py": program}, installed=TABLES.installed)
    simulator = Simulator(trees, modules, TABLES, shards=True, wraps=True)
    return walk(simulator.run_program("train.py"))


def expressions(name: str) -> Iterator[tuple[str, str]]:
    """Yield statements that make a documented name known, and an expression that means it: by its module, and as a
    member of an object of its class."""
    *parts, last = name.split(".")
    if parts == ["*"]:
        yield "import elsewhere\nthing = elsewhere.make()", f"thing.{last}"
        yield "from elsewhere import thing", f"thing.{last}"
    elif not parts or parts[0] == "rank_zero_only":
        yield "", name
        yield f"from elsewhere import {name.partition('.')[0]}", name
    else:
        kinds = [at for at, part in enumerate(parts) if part[:1].isupper() and not part.isupper()]
        packages = parts[: kinds[0] or 1] if kinds else parts
        yield f"import {'.'.join(packages)}", name
        yield f"import {packages[0]}", name
        if kinds:
            cls, members = ".".join(parts[: kinds[-1] + 1]), ".".join([*parts[kinds[-1] + 1 :], last])
            yield f"import {'.'.join(packages)}\nthing = {cls}('at')", f"thing.{members}"


def arguments(keys: tuple[int | str, ...], conditions: tuple[Condition, ...] = (), mode: str = "") -> str:
    """Return arguments under which a call does what its row says."""
    wanted: dict[int | str, str] = {key: repr(value) for key, value in conditions}
    if keys:
        wanted[keys[0]] = "'named'"
    if mode:
        wanted["mode"] = repr(mode)
    most = max((key for key in wanted if isinstance(key, int)), default=-1)
    positions = [wanted.get(at, f"'argument {at}'") for at in range(most + 1)]
    return ", ".join([*positions, *(f"{key}={value}" for key, value in wanted.items() if isinstance(key, str))])


def missing(rows: Iterator[tuple[str, list[str], Callable[[Reach], bool]]]) -> list[str]:
    """Return the rows of which no program gives the call."""
    return [name for name, programs, is_it in rows if not any(any(map(is_it, reached(one))) for one in programs)]


def effects() -> Iterator[tuple[str, list[str], Callable[[Reach], bool]]]:
    """Yield the rows of effects."""
    for name, row in TABLES.effects.items():
        only: tuple[Condition, ...] = ((row.only_if, True),) if row.only_if else ()
        receiver = () if row.receiver else row.path
        given = arguments(receiver, only, row.modes[:1])
        programs = [f"{head}\n{what}({given})\n" for head, what in expressions(name)]
        if row.receiver and row.modes:
            programs += [f"{head}\n{what}('{row.modes[0]}')\n" for head, what in expressions(name)]
        yield name, programs, lambda reach, row=row: reach.call.entry is row and reach.call.kind == row.kind


def test_every_effect_is_recorded() -> None:
    assert missing(effects()) == []


def collectives() -> Iterator[tuple[str, list[str], Callable[[Reach], bool]]]:
    """Yield the rows of collectives."""
    shapes = {"call": "{}({})", "context": "with {}({}):\n    pass", "attribute": "print({})"}
    shapes["store"] = "{} = True"
    for form, rows in TABLES.collectives.items():
        for name, row in rows.items():
            given = arguments((), row.only_if[:1])
            programs = [f"{head}\n{shapes[form].format(what, given)}\n" for head, what in expressions(name)]
            yield name, programs, lambda reach, row=row: reach.call.kind in WAITED and reach.call.entry == row


def test_every_collective_is_recorded() -> None:
    assert missing(collectives()) == []


def signs() -> Iterator[tuple[str, list[str], Callable[[Reach], bool]]]:
    """Yield the calls that show several processes."""
    for kind in ("initialise", "wrap", "sample", "launch"):
        for name in sorted(TABLES.signs[kind]):
            programs = [f"{head}\n{what}(1, 2)\n" for head, what in expressions(name)]
            yield name, programs, lambda reach, kind=kind: reach.call.kind == f"sign {kind}"


def test_every_sign_of_several_processes_is_recorded() -> None:
    assert missing(signs()) == []


SAVED = "import torch\nimport os\n{head}\n{guard}\n    torch.save({{}}, 'a.pt')\n{after}"


def guards(form: str, name: str, *, truth: bool) -> Iterator[str]:
    """Yield programs in which a rank query guards a write."""
    test = "if {}:" if truth else "if {} == 0:"
    if form == "environment":
        yield SAVED.format(head="", guard=f"if int(os.environ['{name}']) == 0:", after="")
        return
    for head, what in expressions(name):
        if form == "decorator":
            for decorator in (f"@{what}", f"@{what}(process_index=0)", f"@{what}(local_process_index=0)"):
                yield SAVED.format(head=head, guard=f"{decorator}\ndef save():", after="save()\n")
        else:
            yield SAVED.format(head=head, guard=test.format(what + "()" * (form == "call")), after="")


def ranks() -> Iterator[tuple[str, list[str], Callable[[Reach], bool]]]:
    """Yield the rank queries that let rank 0, or the first process of each node, through."""
    for form, rows in TABLES.ranks.items():
        for name, query in rows.items():
            roles = GUARDED.get(query.kind)
            if roles is not None and "last" not in (query.which, *name.split("_")):
                programs = list(guards(form, name, truth=query.which == "first"))
                yield (
                    name,
                    programs,
                    lambda reach, roles=roles: reach.call.kind == "checkpoint" and reach.certain == roles,
                )


def test_every_rank_query_is_a_guard() -> None:
    """Of ranks in the job, and of those on the node."""
    assert missing(ranks()) == []


def sizes() -> Iterator[tuple[str, list[str], Callable[[Reach], bool]]]:
    """Yield the queries for how many processes there are: there are several, on every rank."""
    for form, rows in TABLES.ranks.items():
        for name, query in rows.items():
            if query.kind == "many" and form != "environment":
                yield (
                    name,
                    list(guards(form, name, truth=True)),
                    lambda reach: reach.call.kind == "checkpoint" and reach.everyone,
                )


def test_every_query_for_several_processes_is_true() -> None:
    assert missing(sizes()) == []


def test_every_other_name_leads_to_a_documented_one() -> None:
    """And not in a circle."""
    for name in TABLES.aliases:
        assert TABLES.documented(name) != name
        assert TABLES.documented(TABLES.documented(name)) == TABLES.documented(name)


def test_a_row_says_one_thing() -> None:
    """A name is an effect or a collective, never both."""
    assert not set(TABLES.effects) & set(TABLES.collectives["call"])
    assert all(isinstance(row, Effect) and row.name == name for name, row in TABLES.effects.items())
    assert all(isinstance(row, Collective) for rows in TABLES.collectives.values() for row in rows.values())
