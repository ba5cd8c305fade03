"""Groups of fewer processes than were started: the others have left, and those that stay make a world by themselves."""

from __future__ import annotations

from allranks.check.interpret.given import Given
from allranks.check.interpret.state import Frame
from allranks.check.interpret.truth import FIRST, roles_where
from allranks.check.interpret.values import NODE, RANKS
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node
from allranks.check.tables.collectives import Collective

_RANK_0, _OF_EACH_NODE = roles_where(FIRST["global"], "T"), roles_where(FIRST["local"], "T")
_SIZE, _ONE = ("const", "WORLD_SIZE"), ("const", "1")


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
    where the others do not come, joins by the number of its node."""
    number = given.argument("rank", 4) if entry.op == "init_process_group" else None
    if number is not None and frame.may == _OF_EACH_NODE and number.number and number.taint & RANKS == NODE:
        frame.few |= _OF_EACH_NODE
    return frame.are_few


def of_strangers(frame: Frame, entry: Collective, name: str, given: Given) -> bool:
    """Whether a group that only some have, who keep it or were handed it, is of them and of others that are no ranks:
    engines that serve the model."""
    group = given.argument(*entry.group) if entry.group else None
    kept = given.expression(*entry.group) if group is not None and group.ranked else None
    if kept is not None and (kept[0] == "attr" or (kept[0] == "name" and kept[1] in frame.facts.positional)):
        return True
    return name.startswith("*.") and given.of_group


def _says_one(frame: Frame, node: Node) -> bool:
    """Whether a dictionary, or the variable that holds one, has one for the size of the world."""
    found = frame.result.stored.get(node[1]) if node[0] == "name" else node
    return found is not None and found[0] == "dict" and (_SIZE, _ONE) in zip(found[1], found[2], strict=False)


def _is_environment(node: Node) -> bool:
    return render(node) in ("os.environ", "environ")
