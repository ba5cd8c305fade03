"""The doctor's side: ask the ranks of this machine, and through one of them all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from allranks.errors import AllranksError
from allranks.hang import door, kernel, words
from allranks.hang.alarm import Case, Sight
from allranks.hang.beat import Beat
from allranks.hang.diagnose import Seen, diagnose
from allranks.hang.door import Knocker
from allranks.hang.stragglers import Straggler, stragglers
from allranks.report import table

# How long a rank has to answer, in seconds: for itself; for all, through the store.
_OWN, _ALL = 1.5, 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """A job as the doctor found it. ``well``: no rank stands still, is mute, or has ended."""

    job: str
    command: tuple[str, ...]
    hosts: tuple[str, ...]
    case: Case
    slow: tuple[Straggler, ...]

    @property
    def well(self) -> bool:
        return not self.case.diagnosis.culprits and set(self.case.diagnosis.verdicts) == {"healthy"}


def choose(name: str | None) -> list[Knocker]:
    """Return the ranks of the job whose name begins so; of the only one. Raises AllranksError if there is not one."""
    found = {job: ranks for job, ranks in _by_job().items() if job.startswith(name or "")}
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        called = f" called {name}" if name else ""
        remedy = "Ask on its machine, as its user. Jobs of `allranks run`, or that call allranks.init(), answer."
        raise AllranksError(f"no job{called} runs here.", remedy=remedy)
    told = "; ".join(f"{job} ({_described(ranks)})" for job, ranks in found.items())
    raise AllranksError(f"{len(found)} jobs run here: {told}.", remedy="Name one: allranks doctor JOB.")


def jobs() -> dict[str, str]:
    """Return what runs here and can be asked: how many ranks and which command, by the job's name."""
    return {job: _described(ranks) for job, ranks in _by_job().items()}


def _by_job() -> dict[str, list[Knocker]]:
    found: dict[str, list[Knocker]] = {}
    for knocker in door.known():
        found.setdefault(knocker.job, []).append(knocker)
    return found


def consult(ranks: Sequence[Knocker], *, threads: bool) -> Finding:
    """Ask all that can be asked, and judge. Raises AllranksError if no rank of this machine answers."""
    question = {"want": "sight", "threads": threads}
    with ThreadPoolExecutor(max_workers=min(32, len(ranks))) as pool:
        answers = list(pool.map(lambda knocker: door.ask(knocker, question, timeout=_OWN), ranks))
    answered = [(knocker, answer) for knocker, answer in zip(ranks, answers, strict=True) if answer]
    if not answered:
        pids = ", ".join(f"{knocker.pid} ({kernel.state(knocker.pid)})" for knocker in ranks)
        raise AllranksError(f"no rank of job {ranks[0].job} answers; its processes here: {pids}.")
    me = answered[0][1]["rank"]
    sights = {knocker.rank: Sight.from_json(answer["sight"]) for knocker, answer in answered}
    far = {} if len(sights) == me["size"] else _from_the_store(answered[0][0])
    states = {knocker.rank: kernel.state(knocker.pid) for knocker in ranks}
    seen = tuple(_seen(rank, sights, far, states) for rank in range(me["size"]))
    case = Case(me["limit"], seen, sights, diagnose(seen, limit=me["limit"]))
    slow = stragglers({one.rank: (one.beat.pace, one.beat.noise) for one in seen if one.beat})
    return Finding(ranks[0].job, tuple(me["command"]), tuple(me["hosts"]), case, slow)


def _seen(rank: int, sights: Mapping[int, Sight], far: Mapping[str, Any], states: Mapping[int, str]) -> Seen:
    """Put together what is known of a rank: of one of this machine that is mute, its process; of another, its beat."""
    if rank in sights:
        return Seen(rank, sights[rank].beat, calls=sights[rank].calls, branch=sights[rank].branch)
    beats = {beat["rank"]: Beat.from_json(beat) for beat in far.get("beats", ())}
    return Seen(
        rank, beats.get(rank), rank not in states and rank in beats, far.get("ended", {}).get(str(rank), ""),
        states.get(rank, ""),
    )  # fmt: skip


def _from_the_store(knocker: Knocker) -> dict[str, Any]:
    return door.ask(knocker, {"want": "beats"}, timeout=_ALL) or {}


def _described(ranks: Sequence[Knocker]) -> str:
    answer = door.ask(ranks[0], {"want": "sight"}, timeout=_OWN)
    command = " ".join(answer["rank"]["command"]) if answer else f"pid {ranks[0].pid}, which does not answer"
    return f"{len(ranks)} ranks here, {command}"


def in_words(finding: Finding) -> Iterator[str]:
    """Yield the lines of what was found, but for stacks: a table with a row a rank, then who waits for whom."""
    case, hosts = finding.case, finding.hosts
    slow = {one.rank: f"{one.ratio:.2f} x" for one in finding.slow}
    yield f"job {finding.job}: {' '.join(finding.command)}"
    yield ""
    rows = []
    for seen, verdict in zip(case.seen, case.diagnosis.verdicts, strict=True):
        beat = seen.beat
        does = (beat.step, words.call_of(beat), beat.where, f"{beat.since:.0f} s") if beat else (None,) * 4
        rows.append((seen.rank, hosts[seen.rank], *does, slow.get(seen.rank), verdict))
    yield from table(("rank", "host", "step", "in", "at", "for", "slow", "verdict"), rows).splitlines()
    yield ""
    if finding.well:
        yield "all is well"
    elif case.diagnosis.culprits or case.diagnosis.waiting:
        yield words.headline(case, hosts)
        now = case.when
        for rank in case.diagnosis.culprits[: words.MOST]:
            yield from words.culprit(case.seen[rank], case.diagnosis.verdicts[rank], hosts[rank], now)
