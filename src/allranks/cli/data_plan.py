"""Implement ``allranks data plan``: show which rank would read what."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from allranks.cli import screen
from allranks.cli.data_place import add_place, indexed, of_program, opened
from allranks.data.arguments import check_number
from allranks.data.open_loader import epoch_planner
from allranks.data.plan import EpochPlan, choose_layout, divisors
from allranks.data.plan_summary import (
    PlanSummary,
    count_files,
    mixing_ratio,
    stream_coverage,
    streams_of_rank,
    summarize_plan,
)
from allranks.errors import DataError
from allranks.failure import one_line

DESCRIPTION = """\
Say who would read what in an epoch: computed from the plan, the same that the ranks compute; no sample is read.
  allranks data plan 'data/*.parquet' --ranks 4 --batch 64
  allranks data plan train:data --ranks 4               (the data set, or a function that returns it, in train.py)"""
_MOST_ROWS = 16  # ranks that are shown
_CELLS = 64
_BARS = " ▁▂▃▄▅▆▇█"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument("--ranks", type=int, required=True, metavar="N", help="the size of the world")
    parser.add_argument("--batch", type=int, metavar="ROWS", help="the global batch; that of MODULE:NAME is known")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--epoch", type=int, default=0, metavar="E")
    parser.add_argument("--streams", type=int, metavar="S", help="as in .batch(streams=...)")
    parser.add_argument("--lanes", type=int, dest="streams", help=argparse.SUPPRESS)  # its name until 0.1
    parser.add_argument("--window", type=int, metavar="BLOCKS", help="as in .batch(window=...)")
    parser.add_argument("--drop", action="store_true", help='as in .batch(tail="drop")')
    parser.add_argument("--no-shuffle", action="store_true", help="as in shuffle=False")


def run(arguments: argparse.Namespace) -> int:
    where, plan = _plan(arguments)
    found = summarize_plan(plan, arguments.ranks)
    if arguments.json:
        screen.show_json(_document(where, found))
    else:
        _show(where, found)
    return 0


def _plan(arguments: argparse.Namespace) -> tuple[str, EpochPlan]:
    check_number("epoch", arguments.epoch, "the number of an epoch")
    program = of_program(arguments.pattern)
    if program is not None:
        plan = epoch_planner(program)(arguments.epoch)
        if not isinstance(plan, EpochPlan):
            raise DataError(
                f"plan: {arguments.pattern} is a mixture: expected a data set with one source.",
                remedy="Plan its parts one by one.",
            )
        return arguments.pattern, plan
    if arguments.batch is None:
        raise DataError("plan: the size of the global batch is unknown.", remedy="Give --batch ROWS.")
    source = opened(arguments, arguments.pattern)
    index = indexed(source).index
    laid = choose_layout(
        index,
        global_batch=arguments.batch,
        seed=arguments.seed,
        shuffle=not arguments.no_shuffle,
        streams=arguments.streams,
        window=arguments.window,
        tail="drop" if arguments.drop else "pad",
    )
    return source.where, EpochPlan(index, laid, arguments.epoch)


def _document(where: str, found: PlanSummary) -> dict[str, Any]:
    plan = found.plan
    how, index = plan.layout, plan.index
    return {
        "data": where,
        "samples": plan.samples,
        "bytes": index.nbytes,
        "blocks": len(index),
        "batch": how.global_batch,
        "ranks": found.ranks,
        "epoch": plan.epoch,
        "seed": how.seed,
        "shuffle": how.shuffle,
        "streams": how.streams,
        "window": how.window,
        "plan": plan.digest(),
        "steps": plan.steps,
        "dropped": plan.samples - int(found.samples.sum()),
        "padding": int(found.padding.sum()),
        "read_of_one_nth": {"mean": _round(found.read_ratio.mean()), "most": _round(found.read_ratio.max())},
        "held_bytes": found.bytes_held,
        "first_hundredth_touches": _round(mixing_ratio(plan)),
        "world_sizes": divisors(how.global_batch),
        "per_rank": {
            "samples": found.samples.tolist(),
            "padding": found.padding.tolist(),
            "streams": found.streams.tolist(),
            "blocks": found.blocks.tolist(),
            "bytes": found.nbytes.tolist(),
        },
    }


def _round(number: Any) -> float:
    return round(float(number), 4)


def _show(where: str, found: PlanSummary) -> None:
    plan = found.plan
    screen.show(f"{one_line(where)}: epoch {plan.epoch} on {screen.count(found.ranks, 'rank')}", style="bold")
    for name, said in _facts(found):
        screen.show(f"  {name:<8} {said}")
    if plan.layout.streams < found.ranks:
        streams = screen.count(plan.layout.streams, "stream")
        screen.show(
            f"note: {streams} for {found.ranks:,} ranks, so several ranks read the same: take more, of smaller blocks."
        )
    screen.show("")
    shown = _shown(found.ranks)
    columns = ["rank", "rows of a batch", "samples", "padding", "streams", "files", "blocks", "read", "of 1/N"]
    rows = [_row(found, rank) for rank in shown]
    screen.show(screen.table(columns, rows, right=[*columns[2:], "rank"]))
    if len(shown) < found.ranks:
        screen.show(f"... of {found.ranks:,} ranks; the others are alike: --json has all.")
    cells = min(_CELLS, plan.samples)
    screen.show(f"\nwho reads what: the corpus from its first to its last sample; {_BARS[-1]} is all of a part")
    for rank in shown:
        screen.show(f"{rank:>6} {bars(stream_coverage(plan, streams_of_rank(plan, rank, found.ranks), cells))}")


def _facts(found: PlanSummary) -> list[tuple[str, str]]:
    plan = found.plan
    how, index = plan.layout, plan.index
    dropped, padding = plan.samples - int(found.samples.sum()), int(found.padding.sum())
    last = [screen.count(padding, "padding row")] if padding else []
    last += [f"{screen.count(dropped, 'sample')} dropped"] if dropped else []
    order = f"shuffled with seed {how.seed}" if how.shuffle else "not shuffled"
    sizes = divisors(how.global_batch)
    told = ", ".join(map(str, sizes[:24])) + (f", ... {sizes[-1]:,}" if len(sizes) > 24 else "")
    facts = [
        ("data", f"{plan.samples:,} samples, {screen.size(index.nbytes)}, {screen.count(len(index), 'block')}"),
        ("steps", f"{plan.steps:,} on every rank, of {how.global_batch:,} rows; {', '.join(last) or 'no padding'}"),
        ("order", f"{order}, {screen.count(how.streams, 'stream')}, windows of {screen.count(how.window, 'block')}"),
        ("plan", plan.digest()),
        ("shuffle", f"the first 1 % of the steps has samples of {100 * mixing_ratio(plan):.0f} % of the corpus"),
        ("worlds", f"the same batches on {told} ranks"),
    ]
    if index.nbytes:  # for objects that are no files, the size is unknown
        ratio, held = found.read_ratio, screen.size(found.bytes_held)
        facts.append(("reading", f"{ratio.mean():.2f} of 1/N of the bytes on average, {ratio.max():.2f} at most"))
        facts.append(("memory", f"{held} of blocks at a time on a rank, as they are in their files"))
    return facts


def _shown(ranks: int) -> Sequence[int]:
    if ranks <= _MOST_ROWS:
        return range(ranks)
    return [number * (ranks - 1) // (_MOST_ROWS - 1) for number in range(_MOST_ROWS)]


def _row(found: PlanSummary, rank: int) -> list[str]:
    plan, rows = found.plan, found.plan.layout.global_batch // found.ranks
    return [
        f"{rank:,}",
        f"{rank * rows:,} to {(rank + 1) * rows - 1:,}" if rows > 1 else f"{rank:,}",
        f"{found.samples[rank]:,}",
        f"{found.padding[rank]:,}",
        f"{found.streams[rank]:,}",
        f"{count_files(plan, streams_of_rank(plan, rank, found.ranks)):,}",
        f"{found.blocks[rank]:,}",
        screen.size(int(found.nbytes[rank])) if plan.index.nbytes else "",
        f"{found.read_ratio[rank]:.2f}" if plan.index.nbytes else "",
    ]


def bars(shares: Sequence[float]) -> str:
    """Draw shares from 0 to 1 as a line of bar characters. A share above 0 is always visible."""
    full = len(_BARS) - 1
    return "".join(_BARS[0 if share <= 0 else max(1, min(full, round(share * full)))] for share in shares)
