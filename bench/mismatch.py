"""One rank does otherwise than the others: what happens without us, with torch's own debugging, and in lockstep."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.measure import PROGRAMS, ROOT, Ran, in_turns, run
from bench.page import duration, table

CASES = ROOT / "tests" / "gate" / "programs"
MODULES = {
    "jax": "numpy,jax,jax.numpy,jax.experimental.multihost_utils,allranks",
    "torch": "numpy,torch,torch.distributed,torch.nn.parallel,torch.distributed._functional_collectives,allranks",
}
# What the last rank does otherwise, and the case of that in the program.
JAX = {
    "another shape": "first_shape",
    "another dtype": "first_dtype",
    "all_gather for psum": "first_op",
    "max for sum": "first_reduce_op",
    "another learning rate closed over": "first_scan",
    "another static value, both known": "static",
    "max and sum swapped, known calls": "order",
    "a call more": "extra",
    "a step left out": "skipped",
    "shorter epochs": "epochs",
    "a branch not taken": "branch",
    "does not come": "absent",
    "stops early": "early",
}
TORCH = {
    "another shape": "shape",
    "another dtype": "dtype",
    "all_gather for all_reduce": "op",
    "max for sum": "reduce_op",
    "max and sum swapped, known calls": "order",
    "two groups of the same ranks swapped": "groups",
    "a dict filled in another order": "dict_order",
    "a call more": "extra",
    "a step left out": "skipped",
    "shorter epochs": "epochs",
    "no backward of DDP": "ddp",
    "another dtype received than sent": "received",
    "a receive more than sends": "both_receive",
    "does not come": "absent",
    "stops early": "early",
}
WAYS = {"jax": ("nothing", "lockstep"), "torch": ("nothing", "DETAIL", "lockstep")}
# A job is given up after this time; without us its ranks give up sooner, and say that they hung.
PATIENCE = 60.0
_RESULT = re.compile(r"^RESULT (\{.*\})$", re.MULTILINE)
_ENDED = re.compile(r"^ENDED (\[.*\])$", re.MULTILINE)
_TYPED = r"(?:Mismatch|BarrierTimeout|RankDied): rank \d+: [^\n]*?\.py:\d+"
# A rank says it itself, or why it ends.
_SAYS = re.compile(
    rf"(?:Mismatch|BarrierTimeout|RankDied): rank (\d+): [^\n]*?\.py:\d+|allranks: rank (\d+) [^\n]*{_TYPED}"
)
_HUNG = re.compile(r"^Timeout \(0:", re.MULTILINE)
_ABORT, _SIGABRT = re.compile(r"terminate called|Fatal Python error: Aborted|Check failed"), -6
_NAMED, _WRONG, _ABORTED = "an error on all ranks, which names them and the line", "**wrong numbers, exit 0**", "abort"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job, and how many seconds after the bad call the last rank was told, where all were."""

    what: str
    seconds: float = 0.0


def job(framework: str, case: str, ranks: int, way: str) -> Callable[[], Ran]:
    command = [PROGRAMS / "forked.py", ranks, MODULES[framework], CASES / f"lockstep_{framework}.py", case]
    words = [] if way == "lockstep" else ["without"]
    env = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if way == "DETAIL" else {}
    return lambda: run([sys.executable, *command, *words], limit=PATIENCE, env=env, awaited=b": rank ")


def outcome(ran: Ran, case: str, ranks: int) -> Outcome:
    """What became of a job whose ranks did not do the same."""
    results = [json.loads(text)[case] for text in _RESULT.findall(ran.output)]
    ended = _ENDED.search(ran.output)
    codes = json.loads(ended[1]) if ended else []
    told = {int(own or other) for own, other in _SAYS.findall(ran.output)}
    if _SIGABRT in codes or _ABORT.search(ran.output):
        return Outcome(_ABORTED)
    if len(told) == ranks and all(codes):
        return Outcome(_NAMED, _seconds(ran, results, ranks))
    if told:
        return Outcome(f"an error on {len(told)} of {ranks} ranks")
    if _HUNG.search(ran.output) or ran.code is None:
        return Outcome("hangs")
    if ran.code == 0:
        return Outcome(_WRONG)
    errors = [one["error"] for one in results if "error" in one]
    return Outcome(_in_words(errors, numbers=any("numbers" in one for one in results)))


def _seconds(ran: Ran, results: Sequence[Mapping[str, object]], ranks: int) -> float:
    raised = [float(str(one["seconds"])) for one in results if "error" in one]
    if len(raised) == ranks:
        return max(raised)
    return ran.seen - max(float(str(one["began"])) for one in results)


def _in_words(errors: Sequence[str], *, numbers: bool) -> str:
    text = " ".join(errors).lower()
    if "mismatch" in text or "did not match" in text or "detected" in text:
        kind = "an error of torch's, that they differ"
    elif "timed out" in text or "timeout" in text:
        kind = "its timeout"
    else:
        kind = "a lost connection"
    return f"{kind}{', wrong numbers on some' if numbers else ''}"


def told(by_size: Mapping[int, Outcome]) -> str:
    """Return outcomes by the number of ranks in few words."""
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for ranks, one in by_size.items():
        sizes[one.what].append(ranks)
    if len(sizes) == 1:
        return next(iter(sizes))
    return "; ".join(f"{', '.join(map(str, which))} ranks: {what}" for what, which in sizes.items())


def matrix(framework: str, cases: Mapping[str, str], sizes: Sequence[int]) -> tuple[str, dict[str, list[Outcome]]]:
    """Return the table of a framework, and the outcomes by way."""
    rows, every = [], defaultdict[str, list[Outcome]](list)
    for words, case in cases.items():
        found: dict[str, dict[int, Outcome]] = {way: {} for way in WAYS[framework]}
        for ranks in sizes:
            jobs = {way: job(framework, case, ranks, way) for way in found}
            for way, (ran,) in in_turns(jobs, 1).items():
                found[way][ranks] = outcome(ran, case, ranks)
                print(f"  {framework}, {words}, {ranks} ranks, {way}: {found[way][ranks]}", file=sys.stderr, flush=True)
                every[way].append(found[way][ranks])
        ours = found["lockstep"]
        seconds = ", ".join(duration(one.seconds) if one.what == _NAMED else "-" for one in ours.values())
        cells = [told(by_size) for way, by_size in found.items() if way != "lockstep"]
        rows.append(
            (words, *cells, f"all ranks, {seconds}" if {o.what for o in ours.values()} == {_NAMED} else told(ours))
        )
    counted = ", ".join(map(str, sizes))
    names = {"nothing": f"only {framework}", "DETAIL": "TORCH_DISTRIBUTED_DEBUG=DETAIL"}
    heads = [names[way] for way in WAYS[framework] if way != "lockstep"]
    return table((f"one of {counted} ranks", *heads, "in lockstep: which ranks raise, and when"), rows), every


def tables(*, quick: bool) -> str:
    """Return the tables."""
    sizes = (2,) if quick else (2, 4, 8)
    parts, sums = [], []
    for framework, cases in (("jax", JAX), ("torch", TORCH)):
        text, every = matrix(framework, dict(list(cases.items())[3:5]) if quick else cases, sizes)
        parts.append(text)
        for way, outcomes in every.items():
            counts = [sum(one.what.startswith(what) for one in outcomes) for what in (_NAMED, _WRONG, _ABORTED)]
            slowest = max((one.seconds for one in outcomes if one.what == _NAMED), default=0.0)
            sums.append((framework, way, len(outcomes), *counts, duration(slowest) if slowest else "-"))
    heads = (
        "",
        "with",
        "jobs",
        "all ranks say who and where",
        "wrong numbers, exit 0",
        "SIGABRT",
        "at the latest after",
    )
    return "\n\n".join([*parts, table(heads, sums)])
