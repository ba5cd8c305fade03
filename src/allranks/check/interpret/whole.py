"""Whether a model lies in parts, as far as branches and the function say that keeps it. Pure."""

from __future__ import annotations

import re

from allranks.check.interpret.given import Given
from allranks.check.interpret.state import Frame
from allranks.check.summaries.project import SHARDS, Project
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node, body_of, calls_below

# Copies of a model that nobody wraps: averages of its parameters.
_COPIED = re.compile(r"deepcopy$|(?i:ema\w*|averaged_?model|average)$")
_CUTS = re.compile(r"((?i:fully_?shard|(apply|wrap|prepare)_?fsdp)\w*|FSDP|FullyShardedDataParallel)$")


def where_whole(node: Node) -> tuple[Node, ...] | None:
    """Return the side of a branch where a model is not in parts, if it asks for that."""
    asked = render(node[2])
    if not SHARDS.search(asked) or " and " in asked or " or " in asked:
        return None
    side: tuple[Node, ...] = node[3] if asked.startswith("not ") or " != " in asked else node[4]
    return side


def is_whole(project: Project, frame: Frame, given: Given) -> bool:
    """Whether what meets the other ranks for a model in parts alone, is given one that each rank has as a whole."""
    return bool(frame.whole) or not project.shards(frame.path) or _is_copy(frame, given) or _is_cut_later(frame, given)


def _is_cut_later(frame: Frame, given: Given) -> bool:
    """Whether the function lets the model be cut up further down: until then, each rank has all of it."""
    model = given.expression("model", 0)
    calls = [call for call in calls_below(body_of(frame.facts)) if model is not None and call[2][:1] == (model,)]
    cuts = [call[4] for call in calls if _CUTS.search(render(call[1]))]
    return bool(cuts) and all(span > given.span for span in cuts)


def _is_copy(frame: Frame, given: Given) -> bool:
    """Whether the function has made the model itself, as a copy of another, and does not let it be cut up."""
    model = given.expression("model", 0)
    made = frame.result.stored.get(model[1]) if model is not None and model[0] == "name" else None
    if made is None or made[0] != "call" or not _COPIED.search(render(made[1])):
        return False
    calls = calls_below(body_of(frame.facts))
    others = (call for call in calls if render(call[1]).rpartition(".")[2] in ("prepare", "prepare_model"))
    return not any(model in (*call[2], *(value for _, value in call[3])) for call in others)
