"""Streams without an end in an order that each process draws by itself: no two processes go through them alike."""

from __future__ import annotations

import re

from allranks.check.summaries.project import Project
from allranks.check.survey.rounds import gives_for_ever

_DRAWS = frozenset(
    ("choice", "choices", "randint", "randrange", "shuffle", "sample", "permutation", "integers", "random")
)
_SEEDS = re.compile(r"^_?(seed|manual_seed|seed_everything|set_\w*seeds?|default_rng|Generator|RandomState|Random)$")
_SHUFFLED = frozenset(("repeat", "shuffle"))


def is_drawn_endlessly(project: Project, kind: str) -> bool:
    """Whether a class of streams passes on a pipeline of TensorFlow that repeats and shuffles without a seed, or goes
    round and round by itself in an order that it draws from a state which nobody seeds."""
    path, _, name = kind.partition("::")
    summary = project.summaries.get(path)
    methods = [f for f in summary.functions.values() if f.owner == name] if summary is not None else []
    words = {word for method in methods for word in method.words}
    if "as_numpy_iterator" in words:
        piped = [f for s in project.summaries.values() if s.uses("tensorflow") for f in s.functions.values()]
        seeds = any("set_seed" in f.words for f in piped)
        return not seeds and any(set(f.words) >= _SHUFFLED for f in piped)
    drawn = not _DRAWS.isdisjoint(words) and not any(map(_SEEDS.search, words)) and any(map(gives_for_ever, methods))
    return drawn and not _is_seeded(project)


def _is_seeded(project: Project) -> bool:
    functions = (f for s in project.summaries.values() for f in s.functions.values())
    return any(_SEEDS.search(word) for f in functions for word in f.words)
