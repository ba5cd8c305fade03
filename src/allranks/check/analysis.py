"""A project run for four ranks: its entries, what each reaches, where ranks part. What the rules ask."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from allranks.check.entries import programs, uncalled
from allranks.check.knowledge.tables import Collective, Knowledge, load
from allranks.check.project.modules import Modules
from allranks.check.roots import STRONG, Cases, Root, Starts, is_by_trainer
from allranks.check.simulate.parts import Gap
from allranks.check.simulate.simulator import Simulator
from allranks.check.traces.compare import Divergence, TooLong, compare
from allranks.check.traces.walk import Reach, walk

_SEEDS = re.compile(
    r"\b(seed_everything|set_seed|manual_seed|random\.seed|seed_all|set_random_seed|fix_seed)\s*\([^)\n]*"
)
_WRAPS = re.compile(r"DistributedDataParallel|FullyShardedDataParallel|\bfully_shard\b|\b[DF]S?DP\(")
_SHARDS = re.compile(r"fsdp|fully_?shard|deepspeed|zero_?stage|zero3|DTensor|distribute_tensor", re.IGNORECASE)


def _signs(reached: Iterable[Reach], knowledge: Knowledge) -> frozenset[str]:
    """Return what shows that there are several processes: of the collectives that do not say so by their names, those
    of trainers alone."""
    trainers = tuple(f"{name}." for name in knowledge.signs["trainers"] | knowledge.signs["initialise"])
    calls = [one.call for one in reached]
    met = (call for call in calls if isinstance(call.entry, Collective))
    shown = {call.kind for call in met if not call.entry.hidden or call.name.startswith(trainers)}
    return frozenset(shown | {call.kind for call in calls if call.kind.startswith("sign ")})


def _cases(reached: Iterable[Reach]) -> tuple[Cases, ...]:
    """Return in which cases something shows that there are several processes; none if it is shown without one."""
    found = {one.cases for one in reached if one.call.kind in STRONG or one.call.kind in ("sign rank", "collective")}
    return () if () in found else tuple(sorted(found))


def _queries_before_joining(reached: Sequence[Reach]) -> bool:
    """Whether a program queries whether it has joined the others, and joins them after that."""
    signs = [one.call for one in reached if one.call.kind.startswith("sign ")]
    asks = [at for at, call in enumerate(signs) if call.name == "torch.distributed.is_initialized"]
    joins = [at for at, call in enumerate(signs) if call.kind == "sign initialise"]
    return bool(asks and joins) and min(asks) < min(joins)


def _is_started(reach: Reach) -> bool:
    """Whether it is a call of one of several processes that the program has started."""
    return reach.started and reach.call.kind in ("sign initialise", "sign wrap", "collective")


def _is_context(root: Root) -> bool:
    """Whether it is one half of a context that nobody is known to enter: what it waits for, the other half does."""
    name = root.result.symbol.rpartition(".")[2]
    return root.kind != "program" and (root.result.yields or name in ("__enter__", "__exit__"))


def _divergences_of(root: Root, simulator: Simulator) -> list[Divergence]:
    """Return where ranks diverge in an entry. Where that takes too long, the function is noted as not followed."""
    if _is_context(root):
        return []
    try:
        return compare(root.result)
    except TooLong as why:
        line = why.result.line
        simulator.gaps.append(Gap(why.result.path, (line, 0, line, 0), why.result.symbol, str(why)))
        return []


@dataclass(slots=True, eq=False)
class Analysis:
    """All that was found out."""

    roots: list[Root]
    simulator: Simulator
    trees: Mapping[str, ast.Module]
    starts: Starts

    @property
    def unfollowed(self) -> list[Gap]:
        """Calls of programs that lead nowhere, and functions that were not followed to their end."""
        return self.simulator.gaps

    def is_run_once(self, reach: Reach) -> bool:
        """Return whether a call is made in a function, or below one, for which mostly one process is started."""
        says = self.simulator.knowledge.says
        names = [symbol.rpartition(".")[2] for symbol in (*(step[0] for step in reach.chain[1:]), reach.call.symbol)]
        return any(says("once", name) and not says("trains", name) for name in names)

    def reached(self, *kinds: str) -> Iterator[tuple[Root, Reach]]:
        """Yield what is reached of these kinds, each place once: the surest way to it."""
        best: dict[tuple[str, tuple[int, int, int, int], str], tuple[tuple[int, ...], Root, Reach]] = {}
        for root in self.roots:
            for reach in _on_all_ways(root.reached, kinds):
                if kinds and reach.call.kind not in kinds:
                    continue
                key = (reach.call.path, reach.call.span, reach.call.name)
                shared = root.is_shared(reach)
                clear = shared and reach.everyone and not reach.ordered
                rank = (clear, shared, root.sure, reach.certain.bit_count(), not reach.ordered)
                if key not in best or rank > best[key][0]:
                    best[key] = (rank, root, reach)
        yield from ((root, reach) for _, root, reach in best.values())


def _on_all_ways(reached: Iterable[Reach], kinds: Collection[str]) -> Iterator[Reach]:
    """Yield what an entry reaches of these kinds; a call that roles reach on several ways as one of all of them."""
    on_ways: dict[tuple[object, ...], int] = {}
    for reach in reached:
        if kinds and reach.call.kind not in kinds:
            continue
        where = reach.call.where
        site = (reach.call.path, reach.call.span, reach.call.name, where, reach.turn)
        key = site if where is not None else (id(reach),)
        certain = on_ways[key] = on_ways.get(key, 0) | (0 if reach.ordered else reach.certain)
        yield replace(reach, certain=certain) if certain & ~reach.certain and not reach.ordered else reach


def analyse(
    trees: Mapping[str, ast.Module],
    texts: Mapping[str, str],
    *,
    starts: Starts | None = None,
    watched: Collection[str] = (),
    knowledge: Knowledge | None = None,
) -> Analysis:
    """Run the files of a project. ``watched``: functions that rules ask about, beside those of the tables."""
    knowledge, starts = knowledge or load(), starts or Starts()
    shards = any(_SHARDS.search(text) for text in texts.values())
    wraps = any(_WRAPS.search(text) for text in texts.values())
    seeds = [match[0] for text in texts.values() for match in _SEEDS.finditer(text)]
    seeded = bool(seeds) and not any("rank" in seed or "process_index" in seed for seed in seeds)
    modules = Modules.of(trees, installed=knowledge.installed)
    simulator = Simulator(trees, modules, knowledge, watched=watched, shards=shards, wraps=wraps, seeded=seeded)
    roots = [Root(simulator.run_program(path), "program") for path in programs(trees, modules, starts.entries)]
    roots += uncalled(simulator, trees, texts)
    judged: dict[str, Root] = {}
    signs_of = cache(lambda result: _signs(walk(result), knowledge))  # the methods of a class share one constructor
    for root in roots:
        root.reached = walk(root.result)
        if root.kind == "program" and _queries_before_joining(root.reached):
            root.result = simulator.run_program(root.result.path, alone=True)
            root.reached = walk(root.result)
        root.parted = _divergences_of(root, simulator)
        root.signs = _signs(root.reached, knowledge) | (signs_of(root.born) if root.born is not None else frozenset())
        root.starts = root.result.path not in starts.together and any(map(_is_started, root.reached))
        root.cases = _cases(root.reached) if root.kind == "program" else ()
        root.by_trainer = root.result.path not in starts.together and is_by_trainer(root)
        root.asks = frozenset(one.call.name for one in root.reached if one.call.kind in ("sign rank", "sign size"))
        starts.judge(root, knowledge, judged)
        if root.kind == "program":
            judged[root.result.path] = root
    return Analysis(roots, simulator, trees, starts)
