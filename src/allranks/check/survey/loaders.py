"""Loaders that give every process of a program the whole data set, though another file wraps the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from allranks.check.program import Event
from allranks.check.summaries.project import Project, mentioned
from allranks.check.summaries.render import render
from allranks.check.tables.data import HELD_OUT, LOADERS
from allranks.findings import Place

# Who imports one of these may leave it to them to split the data.
_SPLITTING = frozenset(
    [
        *("accelerate", "lightning", "transformers", "composer", "ray", "webdataset", "streaming", "litdata", "fastai"),
        *("mmengine", "mmcv", "detectron2", "horovod", "deepspeed", "catalyst", "ignite", "torchtnt", "nemo", "trl"),
    ]
)
_OFF = re.compile(r"\b(use_distributed_sampler|replace_sampler_ddp)[\"']?\s*[=:]\s*False\b")
# Words of a function that chooses between loaders, and of a data set that knows its process.
_CHOOSES = re.compile(r"sampler|shard|split_|prepare|replica", re.IGNORECASE)
_SAMPLER = re.compile(r"(^|\.)(Batch)?Sampler(\[|$)")
_KNOWS = re.compile(r"rank|shard|replica|process_index|world|worker_info|split_by|node", re.IGNORECASE)


def unsplit(project: Project, events: Iterable[Event], lines: Mapping[str, list[str]]) -> frozenset[Place]:
    """Return the shuffling loaders without a sampler in programs that wrap a model for several processes."""
    every = list(events)
    wraps = {e.place.path for e in every if e.wraps and e.active}
    candidates = [
        e
        for e in every
        if e.name in LOADERS and e.active and e.everyone and not _is_sampled(e) and not _deals(project, e)
    ]
    found = {e.place for e in candidates if _shuffles(e) and _is_wrapped(project, e, wraps)}
    picking = (e for e in every if e.name in LOADERS and e.active and e.everyone and _picks_for_all(project, e))
    found |= {e.place for e in picking if _is_wrapped(project, e, wraps)}
    lightning = {e.place for e in candidates if _is_of_lightning(project, e)}
    if lightning and _puts_none_in(lines):
        found |= lightning
    return frozenset(found)


def _is_wrapped(project: Project, event: Event, wraps: set[str]) -> bool:
    """Whether its program wraps a model in one of these files, and imports nothing that splits data by itself."""
    reach = project.reach(event.chain[0].place.path if event.chain else event.place.path)
    return not wraps.isdisjoint(reach) and mentioned(project, reach)[0].isdisjoint(_SPLITTING)


def _puts_none_in(lines: Mapping[str, list[str]]) -> bool:
    """Whether Lightning is told to put no sampler in."""
    return any(_OFF.search(line) for path in lines if path.endswith(".py") for line in lines[path])


def _is_of_lightning(project: Project, event: Event) -> bool:
    """Whether it may shuffle, in a class that gives Lightning its loaders."""
    shuffle, summary = event.argument("shuffle", 2), project.summaries.get(event.place.path)
    owned = (facts := project.function(event.function)) is not None and bool(facts.owner)
    held_out = HELD_OUT.search(event.symbol.rpartition(".")[2])
    uses = summary is not None and any(map(summary.uses, ("lightning", "pytorch_lightning")))
    return owned and uses and not held_out and shuffle is not None and shuffle.constant is not False


def _shuffles(event: Event) -> bool:
    shuffle = event.argument("shuffle", 2)
    return shuffle is not None and shuffle.constant is True


def _is_sampled(event: Event) -> bool:
    given = [event.argument("sampler", 3), event.argument("batch_sampler", 4)]
    return "**" in {name for name, _ in event.keywords} or any(v is not None and v.constant is not None for v in given)


def _picks_for_all(project: Project, event: Event) -> bool:
    """Whether a sampler of the project's own that knows no ranks says what is read, and the data knows none either."""
    held_out = HELD_OUT.search(event.symbol.rpartition(".")[2])
    samplers = [event.argument("sampler", 3), event.argument("batch_sampler", 4)]
    kinds = [value.instance for value in samplers if value is not None and value.instance]
    if held_out or not any(_is_sampler(project, kind) for kind in kinds):
        return False
    data = event.argument(0, "dataset")
    unknown = data is None or data.ranked or data.flags
    return not unknown and not any(_knows(project, kind) for kind in (*kinds, data.instance if data else ""))


def _is_sampler(project: Project, kind: str) -> bool:
    """Whether a class of the project's own inherits from torch's sampler alone."""
    path, _, name = kind.partition("::")
    summary = project.summaries.get(path) if name else None
    facts = summary.classes.get(name) if summary is not None else None
    return facts is not None and any(_SAMPLER.search(render(base)) for base in facts.bases)


def _knows(project: Project, kind: str) -> bool:
    """Whether a class of the project speaks of the process that it is in."""
    path, _, name = kind.partition("::")
    summary = project.summaries.get(path) if name else None
    methods = [f for key, f in summary.functions.items() if key.startswith(f"{name}.")] if summary is not None else []
    return any(_KNOWS.search(word) for method in methods for word in (*method.words, *method.positional))


def _deals(project: Project, event: Event) -> bool:
    """Whether the function that makes the loader chooses among several, or the data set knows its process."""
    facts = project.function(event.function)
    if facts is None or any(map(_CHOOSES.search, facts.words)):
        return True
    given = event.argument(0, "dataset")
    return given is None or given.ranked or bool(given.flags) or _knows(project, given.instance)
