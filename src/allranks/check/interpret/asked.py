"""How programs ask whether there are others, without asking for a rank or for how many. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from allranks.check.interpret.truth import BY_RANK, UNKNOWN
from allranks.check.interpret.values import MANY, RANKS, Value, boolean
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node
from allranks.check.tables.apis import Apis
from allranks.check.tables.data import WRAPPERS

# Of a setting, that it says how processes are started or share the work; and what it is where there is one alone.
_HOW = re.compile(
    r"(?i)(^|[._'\[])(launcher|job_launcher|strategy|dist\w*(mode|type|strategy|backend|launcher|kind)"
    r"|distributed(_mode|_type|_strategy|_backend)?|parallel(ism)?(_mode|_type|_strategy)?|(multi_?gpu|ddp)_?(mode|type))['\]]*$"
)
_ALONE = frozenset(
    ["none", "no", "off", "single", "single_gpu", "single-gpu", "singlegpu", "single_device", "single_process", "null"]
)
_COULD_BE = re.compile(r"_?(USE|HAS|HAVE|WITH)_(HOROVOD|HVD|MPI|MPI4PY)$")
_LISTED = re.compile(r"(^|\.)(training_args|trainer\.args)\.report_to$")
_OF_MESH = re.compile(r"rank|coordinate")
_IN_PARTS = re.compile(r"(?i)fsdp|shard|zero|deepspeed")
_NOBODY = re.compile(r"\bDistributedType\.NO$")
# Modules that are tried, and None if they are not there, by programs that several processes run with them alone.
_JOINED_BY = frozenset(["mpi4py.MPI", "mpi4py", "horovod"])
_DDP = frozenset(name for name in WRAPPERS if name.endswith("DistributedDataParallel"))


def says_alone(apis: Apis, sides: tuple[Node, Node], left: Value, symbol: str, right: Value) -> bool | None:
    """Return what a comparison gives where there are several processes, if that is what it asks: a launcher's
    variable is there, a setting is not the one of a process alone, and what they meet with could be imported. None for
    other comparisons."""
    if symbol in ("in", "not in"):
        asked = isinstance(left.constant, str) and right.reference == "os.environ"
        query = apis.ranks["environment"].named(str(left.constant)) if asked else None
        return (symbol == "in") if query is not None and query.kind != "node" else None
    if symbol not in ("==", "!=", "is", "is not"):
        return None
    for one, value, other, its in ((sides[0], left, sides[1], right), (sides[1], right, sides[0], left)):
        if its.constant is None and not value.taint and value.reference in _JOINED_BY:
            return symbol in ("!=", "is not")
        if value.taint or value.true() != UNKNOWN:
            continue
        word = its.constant.lower() in _ALONE if isinstance(its.constant, str) else bool(_NOBODY.search(render(other)))
        if word and _HOW.search(render(one)):
            return symbol in ("!=", "is not")
    return None


def is_no_text(one: Node, symbol: str, right: Value) -> bool | None:
    """Return what it gives to compare a setting of transformers with a text that is a list once it is read; None for
    other comparisons."""
    if symbol not in ("==", "!=") or not isinstance(right.constant, str):
        return None
    return symbol == "!=" if _LISTED.search(render(one)) else None


def imported(name: str, value: Value) -> Value:
    """Return what a name stands for; if it says whether that could be imported with which processes meet, it could."""
    unknown = not value.taint and not value.reference and not value.instance and value.true() == UNKNOWN
    return Value(constant=True, flags=MANY) if unknown and _COULD_BE.match(name) else value


def by_mesh(asked: Node, other: Node, right: Value) -> Value | None:
    """Return what a condition gives that asks if there is no mesh, or else for the place in it: where there are several
    processes, there is one. None for other conditions."""
    none = asked[0] == "cmp" and asked[2] == ("is",) and asked[3] == (("const", None),)
    mesh = render(asked[1]) if none else ""
    if not mesh.endswith("mesh") or not _OF_MESH.search(render(other)) or mesh not in render(other):
        return None
    return right if right.ranked else boolean(BY_RANK, RANKS)


def is_wrapped(value: Value, classes: Value | None) -> Value | None:
    """Return what ``isinstance`` gives for a model that is wrapped where there are several processes; None if another
    class is asked for."""
    asked = (classes.elements or (classes,)) if classes is not None else ()
    if not any(one.reference in _DDP for one in asked) or (value.instance and value.instance not in _DDP):
        return None
    return Value(constant=True, flags=MANY)


def asks_for_others(branch: Node, says_who: Callable[[Node], bool]) -> bool | None:
    """Return what a condition is where there are several processes, if both its sides do the same, and one of them
    behind a guard on the rank; None of others. ``says_who``: whether a condition says which rank this is.

    Not where the other side is that of a model in parts: there all ranks must come.
    """
    for many, side, other in ((True, branch[3], branch[4]), (False, branch[4], branch[3])):
        guard = side[0] if len(side) == 1 and side[0][0] == "if" and not side[0][4] else None
        if guard is not None and other and _same(guard[3], other) and says_who(guard[2]):
            denied = branch[2][0] == "not"
            return None if denied == many and _IN_PARTS.search(render(branch[2])) else many
    return None


def _same(one: object, other: object) -> bool:
    """Whether two pieces of code are the same, wherever they stand."""
    if not (isinstance(one, tuple) and isinstance(other, tuple)):
        return one == other or type(one) is type(other) is int  # the line, or the column
    if one[:1] == ("const",):
        return one == other
    return len(one) == len(other) and all(map(_same, one, other))
