"""Groups of fewer processes than were started: the others have left, and those that stay make a world by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from allranks.check.interpret.given import Given, has_one_device, has_several
from allranks.check.interpret.logged import MADE, TRAINER
from allranks.check.interpret.state import Frame
from allranks.check.interpret.truth import EVERY, FIRST, roles_where
from allranks.check.interpret.values import NODE, RANKS, Value
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import FunctionFacts, Node, body_of, nodes_in
from allranks.check.tables.collectives import Collective
from allranks.check.tables.ranks import RankQuery
from allranks.check.tables.receivers import ONE_PROCESS

_NO_RANK = ("const", -1)

_RANK_0, _OF_EACH_NODE = roles_where(FIRST["global"], "T"), roles_where(FIRST["local"], "T")
_SIZE, _ONE = ("const", "WORLD_SIZE"), ("const", "1")
_ONES, _DEVICES = (("const", 1), _ONE), frozenset(["devices", "gpus", "num_nodes", "strategy"])


def leave_world(frame: Frame, node: Node) -> None:
    """Note that rank 0, where no other comes, says in the environment that it is the only process: ``node`` is what is
    stored there (``os.environ["WORLD_SIZE"] = "1"``), or a call (``os.environ.update({"WORLD_SIZE": "1"})``)."""
    if frame.may != _RANK_0:
        return
    if node[0] == "assign":
        said = node[3] == _ONE and any(t[0] == "sub" and t[2] == _SIZE and _is_environment(t[1]) for t in node[2])
    else:
        updates = node[0] == "call" and node[1][0] == "attr" and node[1][2] == "update" and _is_environment(node[1][1])
        said = updates and (("WORLD_SIZE", _ONE) in node[3] or any(_says_one(frame, told) for told in node[2]))
    frame.few |= _RANK_0 if said else 0


def of_few(frame: Frame, entry: Collective, given: Given) -> bool:
    """Whether a collective is met by all who have stayed: rank 0 has left the world, or one process of each node,
    where the others do not come, joins by the number of its node, or those of a list make a world of as many, or each
    makes one of its own."""
    size = given.expression("world_size", 3) if entry.op == "init_process_group" else None
    if size is not None and size[0] == "call" and size[1] == ("name", "len") and _have_left(frame, render(size[2][0])):
        frame.few |= EVERY
    if size is not None and is_world_of_one(given):
        frame.few |= frame.may
    number = given.argument("rank", 4) if entry.op == "init_process_group" else None
    if number is not None and frame.may == _OF_EACH_NODE and number.number and number.taint & RANKS == NODE:
        frame.few |= _OF_EACH_NODE
    return frame.are_few


def _have_left(frame: Frame, ranks: str) -> bool:
    """Whether who is not in a list has returned before."""
    gone = (node for node in frame.nodes if node[0] == "branch" and node[3][-1:] == (("exit", "return"),))
    return any(node[6].endswith(f" not in {ranks}") for node in gone)


def of_strangers(frame: Frame, entry: Collective, name: str, given: Given) -> bool:
    """Whether a group that only some have, who keep it or were handed it, is of them and of others that are no ranks:
    engines that serve the model; or they leave a group, where each goes for itself."""
    if entry.op == "destroy_process_group" and given.node[2] and given.node[2][0] != ("const", None):
        return not render(given.node[2][0]).endswith("WORLD")
    group = given.argument(*entry.group) if entry.group else None
    kept = given.expression(*entry.group) if group is not None and group.ranked else None
    if kept is not None and (kept[0] == "attr" or (kept[0] == "name" and kept[1] in frame.facts.positional)):
        return True
    return name.startswith("*.") and given.of_group


def is_world(group: Value | None) -> bool:
    """Whether a group is that of all for certain: what may be another one too says that it is asked for."""
    return group is not None and group.reference.endswith("group.WORLD") and not group.none


def stays_alone(frame: Frame, given: Given) -> bool:
    """Whether what starts processes, one for each device, starts no other, for all that its options say, also those
    that were put together before, or joins a world of one."""
    if is_world_of_one(given) or _is_on_cpu(given):
        return True
    told = given.argument("devices", "gpus", "num_nodes") is not None
    return has_one_device(given) if told else any(_names_one_device(frame, n) for name, n in given.node[3] if not name)


def _is_on_cpu(given: Given) -> bool:
    """Whether a command line of Lightning's has the CPU for its default, and says no more of devices: that is one."""
    defaults = given.expression("trainer_defaults")
    told = _entries(defaults) if defaults is not None else {}
    return told.get("accelerator") == ("const", "cpu") and _DEVICES.isdisjoint(map(str, told))


def is_world_of_one(given: Given) -> bool:
    """Whether what joins processes is told that there is one."""
    size = given.argument("world_size")
    return size is not None and size.constant == 1


def trainer(frame: Frame, name: str, given: Given) -> Value:
    """Return a trainer or a fabric of Lightning's that a program makes: with others, or alone."""
    if stays_alone(frame, given):
        frame.result.evidence.add("alone")
        return Value(instance=ONE_PROCESS)
    if name == TRAINER and has_several(given):
        frame.shows("wrap")
    return Value(instance=name, flags=MADE if name == TRAINER else frozenset())


def _names_one_device(frame: Frame, node: Node) -> bool:
    """Whether options that are handed on, as a variable of this function holds them, name one device, and nothing is
    entered into them afterwards that is about devices and nodes."""
    made = frame.result.stored.get(node[1]) if node[0] == "name" else None
    if made is None:
        return False
    pairs = dict(made[3]) if made[0] == "call" and made[1] == ("name", "dict") else _entries(made)
    later = {key for owner, key in _entered(body_of(frame.facts)) if owner == node[1]}
    return pairs.get("devices") in _ONES and pairs.get("num_nodes", ("const", 1)) in _ONES and not later & _DEVICES


def _entries(made: Node) -> dict[object, Node]:
    return {key[1]: value for key, value in zip(made[1], made[2], strict=False)} if made[0] == "dict" else {}


def _entered(part: Any) -> Iterator[tuple[object, object]]:
    """Yield under which key something is entered into which variable; as devices what updates it."""
    match part:
        case ("assign", _, targets, _):
            for target in targets:
                match target:
                    case ("sub", ("name", name), ("const", key)):
                        yield name, key
                    case ("sub", ("name", name), _):
                        yield name, "devices"
        case ("attr", ("name", name), "update" | "setdefault", *_):
            yield name, "devices"
    for inner in part if isinstance(part, tuple) else ():
        yield from _entered(inner)


def _says_one(frame: Frame, node: Node) -> bool:
    """Whether a dictionary, or the variable that holds one, has one for the size of the world."""
    found = frame.result.stored.get(node[1]) if node[0] == "name" else node
    return found is not None and found[0] == "dict" and (_SIZE, _ONE) in zip(found[1], found[2], strict=False)


def _is_environment(node: Node) -> bool:
    return render(node) in ("os.environ", "environ")


def is_left_alone(facts: FunctionFacts, given: Given, ranks: Callable[[str], RankQuery | None]) -> bool:
    """Whether a call leaves out the rank, and the function takes that for -1, and nothing else: no other process."""
    ours = [name for name, default in facts.defaults if default == _NO_RANK and ranks(name) is not None]
    if len(ours) != 1 or any(one in (name, "**") for name in ours for one, _ in given.keywords):
        return False
    names = facts.positional[1:] if facts.owner else facts.positional
    told = ours[0] in names[: len(given.values)] or any(node[0] == "star" for node in given.node[2])
    parts = list(nodes_in(body_of(facts)))
    asked = any(part[:2] == ("cmp", ("name", ours[0])) and part[3] == (_NO_RANK,) for part in parts)
    return asked and not told and not any(part[0] == "assign" and ("name", ours[0]) in part[2] for part in parts)
