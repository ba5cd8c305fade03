"""Loaders that give every process of a program the whole data set, though another file wraps the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from allranks.check.interpret.interest import idle
from allranks.check.interpret.values import Value
from allranks.check.program import Event
from allranks.check.summaries.project import Project, mentioned
from allranks.check.summaries.render import render
from allranks.check.survey.endless import is_drawn_endlessly
from allranks.check.tables.data import HELD_OUT, LOADERS, OF_ALL
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
_CHOOSES = re.compile(r"sampler|shard|split_|prepare|replica|partition_dataset", re.IGNORECASE)
_OF_ALL = {"sampler", *(name.rpartition(".")[2] for name in OF_ALL), "SequentialSampler"}
_ASKS = re.compile(r"rank|world_size|replicas|[Dd]istributed")
_TRAINS = re.compile(r"(^|_)train")
_MEASURES = re.compile(r"(^|_)(mean|std|stats|statistics)(_|$)")  # it goes over all data once, to normalise them
_SAMPLER = re.compile(r"(^|\.)(Batch)?Sampler(\[|$)")
_MADE_UP = re.compile(r"(?i)dummy|fake|synthetic|random|mock|toy")  # data that tries the program on
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
    streams = (e for e in candidates if is_plain(e) and _is_stream(project, e))
    found |= {e.place for e in streams if _is_wrapped(project, e, wraps, led=True)}
    picking = (e for e in every if e.name in LOADERS and e.active and e.everyone and _picks_for_all(project, e))
    found |= {e.place for e in picking if _is_wrapped(project, e, wraps)}
    lightning = {e.place for e in candidates if _is_of_lightning(project, e)}
    if lightning and _puts_none_in(lines):
        found |= lightning
    return frozenset(found)


def resplit(project: Project, events: Iterable[Event], lines: Mapping[str, list[str]]) -> frozenset[Place]:
    """Return the loaders that a class gives Lightning with a sampler of the project's own that takes the part of its
    process: whatever is no distributed sampler of torch is wrapped in one, unless Lightning is told to put none in."""
    every = [e for e in events if e.name in LOADERS and e.active and _is_led(project, e)]
    samplers = ((e, value.instance) for e in every if (value := e.argument("sampler", 3)) is not None)
    found = {e.place for e, kind in samplers if _is_sampler(project, kind) and _deals_out(project, kind)}
    return frozenset() if not found or _puts_none_in(lines) else frozenset(found)


def _is_wrapped(project: Project, event: Event, wraps: set[str], *, led: bool = False) -> bool:
    """Whether its program wraps a model in one of these files, and imports nothing that splits data by itself; ``led``:
    it counts only where that goes over the loaders."""
    reach = project.reach(event.start.place.path)
    packages = mentioned(project, reach)[0] - (idle(project, reach) if led else frozenset())
    return not wraps.isdisjoint(reach) and packages.isdisjoint(_SPLITTING)


def _puts_none_in(lines: Mapping[str, list[str]]) -> bool:
    """Whether Lightning is told to put no sampler in."""
    return any(_OFF.search(line) for path in lines if path.endswith(".py") for line in lines[path])


def _is_of_lightning(project: Project, event: Event) -> bool:
    """Whether it may shuffle, in a class that gives Lightning its loaders."""
    shuffle = event.argument("shuffle", 2)
    return _is_led(project, event) and shuffle is not None and shuffle.constant is not False


def _is_led(project: Project, event: Event) -> bool:
    """Whether it stands in a class of a file that uses Lightning, and is not of held-out data."""
    summary, facts = project.summaries.get(event.place.path), project.function(event.function)
    uses = summary is not None and any(map(summary.uses, ("lightning", "pytorch_lightning")))
    return uses and facts is not None and bool(facts.owner) and not HELD_OUT.search(event.symbol.rpartition(".")[2])


def _shuffles(event: Event) -> bool:
    shuffle = event.argument("shuffle", 2)
    return (shuffle is not None and shuffle.constant is True) or _picks_of_all(event)


def is_plain(event: Event) -> bool:
    """Whether it is told nothing of how its samples are picked: as it must be for a stream."""
    return event.argument("shuffle", 2) is None and not _samplers(event)


def _is_stream(project: Project, event: Event) -> bool:
    """Whether it goes through a stream of the project's own to train on, where nobody speaks of who is here: not even
    the function that makes the loader, which may give the stream a part."""
    data, facts = event.argument(0, "dataset"), project.function(event.function)
    kind = project.cls(data.instance) if data is not None else None
    if kind is None or data is None or facts is None or any(map(_KNOWS.search, facts.words)):
        return False
    named = f"{event.symbol.rpartition('.')[2]} {data.instance.rpartition('::')[2]}"
    told_apart = HELD_OUT.search(named) or _MADE_UP.search(named)
    streams = any(render(base).endswith("IterableDataset") for base in kind.bases)
    return streams and not told_apart and not is_drawn_endlessly(project, data.instance)


def _is_sampled(event: Event) -> bool:
    """Whether it has a sampler that may know of the other processes, or makes one (``use_ddp``: dgl)."""
    named = dict(event.keywords)
    if "**" in named or ("use_ddp" in named and named["use_ddp"].constant is not False):
        return True
    return any(value.constant is not None for value in _samplers(event)) and not _picks_of_all(event)


def _picks_of_all(event: Event) -> bool:
    """Whether its sampler draws of all samples, and its data is no loader of another kind that gives whole batches."""
    sampler, size = event.argument("sampler", 3), event.argument("batch_size", 1)
    whole = size is not None and size.constant is None
    return sampler is not None and sampler.instance in OF_ALL and not whole


def _samplers(event: Event) -> list[Value]:
    """Return what a loader is given to pick its samples or its batches by."""
    given = (event.argument("sampler", 3), event.argument("batch_sampler", 4))
    return [value for value in given if value is not None]


def _picks_for_all(project: Project, event: Event) -> bool:
    """Whether a sampler of the project's own that knows no ranks says what is read, and the data knows none either."""
    facts, last = project.function(event.function), event.symbol.rpartition(".")[2]
    if facts is None or any(map(_ASKS.search, facts.words)):
        return False
    trains = any(map(_TRAINS.search, (last, *facts.words)))
    kinds = [value.instance for value in _samplers(event) if value.instance]
    if HELD_OUT.search(last) or not trains or not any(_is_sampler(project, kind) for kind in kinds):
        return False
    data = event.argument(0, "dataset")
    unknown = data is None or data.ranked or data.flags
    return not unknown and not any(_knows(project, kind) for kind in (*kinds, data.instance if data else ""))


def _is_sampler(project: Project, kind: str) -> bool:
    """Whether a class of the project's own inherits from torch's sampler alone, and goes through no other sampler."""
    facts = project.cls(kind)
    around = any("sampler" in word for word in _words_of(project, kind))
    return facts is not None and not around and any(_SAMPLER.search(render(base)) for base in facts.bases)


def _deals_out(project: Project, kind: str) -> bool:
    """Whether a sampler keeps the number of its process and how many there are."""
    words = set(_words_of(project, kind))
    return "rank" in words and not words.isdisjoint(("num_replicas", "world_size"))


def _knows(project: Project, kind: str) -> bool:
    """Whether a class of the project speaks of the process that it is in, or what it calls in a file that it imports
    does: ``me, count = reader()``."""
    words, path = set(_words_of(project, kind)), kind.partition("::")[0]
    if any(map(_KNOWS.search, words)):
        return True
    imported = project.imported(path) if path in project.summaries else ()
    called = (f for one in imported for f in project.summaries[one].functions.values() if f.name in words)
    return any(not f.owner and any(map(_ASKS.search, (w.lower() for w in f.words))) for f in called)


def _words_of(project: Project, kind: str) -> Iterator[str]:
    """Yield what the methods of a class of the project name, and their parameters."""
    path, _, name = kind.partition("::")
    summary = project.summaries.get(path) if name else None
    methods = [f for key, f in summary.functions.items() if key.startswith(f"{name}.")] if summary is not None else []
    return (word for method in methods for word in (*method.words, *method.positional))


def _deals(project: Project, event: Event) -> bool:
    """Whether the function that makes the loader chooses among several, or the data set knows its process."""
    facts = project.function(event.function)
    words = set(facts.words) if facts is not None else set()
    words -= _OF_ALL if _picks_of_all(event) else set()
    if facts is None or any(map(_CHOOSES.search, words)) or _MEASURES.search(facts.name):
        return True
    given = event.argument(0, "dataset")
    return given is None or given.ranked or bool(given.flags) or _knows(project, given.instance)
