"""Query a running job for ``allranks doctor job``: the ranks of this machine, and through one of them the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from allranks.errors import AllranksError
from allranks.failure import one_line
from allranks.hang import endpoint, kernel, messages
from allranks.hang.alarm import HangCase, RankSnapshot
from allranks.hang.diagnose import RankObservation, diagnose
from allranks.hang.endpoint import Address
from allranks.hang.heartbeat import Heartbeat
from allranks.hang.stragglers import Straggler, stragglers
from allranks.launch import control_socket
from allranks.process import command_line
from allranks.report import format_table
from allranks.report.base import count
from allranks.secret_values import mask_arguments

# How long a rank has to answer, in seconds: for itself; for all, through the store.
_OWN, _ALL = 1.5, 3.0


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job at the time of the query.

    ``well``: every rank makes progress, answers, and has not ended.
    """

    job: str
    command: tuple[str, ...]
    hosts: tuple[str, ...]
    case: HangCase
    slow: tuple[Straggler, ...]

    @property
    def well(self) -> bool:
        return not self.case.diagnosis.culprits and set(self.case.diagnosis.verdicts) == {"healthy"}


def choose_job(name: str | None) -> list[Address]:
    """Return the ranks of the job whose name begins with ``name``, or of the only job on this machine.

    Raises AllranksError if no job or several jobs fit.
    """
    found = {job: ranks for job, ranks in _by_job().items() if job.startswith(name or "")}
    if len(found) == 1:
        return next(iter(found.values()))
    if not found and not name and (launchers := control_socket.launchers_here()):
        listed = "; ".join(f"process {pid}: {' '.join(mask_arguments(command_line(pid)))}" for pid in launchers)
        raise AllranksError(
            f"no rank of a job here has joined the others yet. {count(len(launchers), 'launcher')}: {listed}.",
            remedy="Ranks answer from allranks.init(), jax.distributed.initialize() or init_process_group() on. After "
            "the seconds of --hang-after, the launcher itself reports where the late ranks are.",
        )
    if not found:
        called = f" called {name}" if name else ""
        remedy = (
            "Run it on the job's machine, as its user. It finds jobs of `allranks run`, or that call allranks.init()."
        )
        raise AllranksError(f"no job{called} runs here.", remedy=remedy)
    listed = "; ".join(f"{job} ({_describe_ranks(ranks)})" for job, ranks in found.items())
    raise AllranksError(
        f"{len(found)} jobs run here: {listed}.", remedy="Give the name of one job: allranks doctor JOB."
    )


def jobs_on_this_machine() -> dict[str, str]:
    """Return the jobs on this machine that can be queried: their ranks and command as text, by the job's name."""
    return {job: _describe_ranks(ranks) for job, ranks in _by_job().items()}


def _by_job() -> dict[str, list[Address]]:
    found: dict[str, list[Address]] = {}
    for address in endpoint.known_addresses():
        found.setdefault(address.job, []).append(address)
    return found


def query_job(ranks: Sequence[Address], *, threads: bool) -> JobState:
    """Query all ranks that can be reached, and return the judged state of the job.

    Raises AllranksError if no rank of this machine answers.
    """
    wanted = {"want": "sight", "threads": threads}
    with ThreadPoolExecutor(max_workers=min(32, len(ranks))) as pool:
        answers = list(pool.map(lambda address: endpoint.request(address, wanted, timeout=_OWN), ranks))
    answered = [(address, answer) for address, answer in zip(ranks, answers, strict=True) if answer]
    if not answered:
        pids = ", ".join(f"{address.pid} ({kernel.process_state(address.pid)})" for address in ranks)
        raise AllranksError(f"job {ranks[0].job}: no rank of this machine answers; its processes: {pids}.")
    me = answered[0][1]["rank"]
    snapshots = {address.rank: RankSnapshot.from_json(answer["sight"]) for address, answer in answered}
    far = {} if len(snapshots) == me["size"] else _from_the_store(answered[0][0])
    states = {address.rank: kernel.process_state(address.pid) for address in ranks}
    seen = tuple(_observation_of(rank, snapshots, far, states) for rank in range(me["size"]))
    case = HangCase(me["limit"], seen, snapshots, diagnose(seen, limit=me["limit"]))
    slow = stragglers({one.rank: (one.heartbeat.pace, one.heartbeat.noise) for one in seen if one.heartbeat})
    return JobState(ranks[0].job, tuple(mask_arguments(me["command"])), tuple(me["hosts"]), case, slow)


def _observation_of(
    rank: int, snapshots: Mapping[int, RankSnapshot], far: Mapping[str, Any], states: Mapping[int, str]
) -> RankObservation:
    """Return what is known of a rank: its answer, the state of its process on this machine, or its last heartbeat."""
    if rank in snapshots:
        return RankObservation(
            rank, snapshots[rank].heartbeat, calls=snapshots[rank].calls, branch=snapshots[rank].branch
        )
    heartbeats = {heartbeat["rank"]: Heartbeat.from_json(heartbeat) for heartbeat in far.get("beats", ())}
    return RankObservation(
        rank, heartbeats.get(rank), rank not in states and rank in heartbeats, far.get("ended", {}).get(str(rank), ""),
        states.get(rank, ""),
    )  # fmt: skip


def _from_the_store(address: Address) -> dict[str, Any]:
    return endpoint.request(address, {"want": "beats"}, timeout=_ALL) or {}


def _describe_ranks(ranks: Sequence[Address]) -> str:
    answer = endpoint.request(ranks[0], {"want": "sight"}, timeout=_OWN)
    command = (
        one_line(" ".join(mask_arguments(answer["rank"]["command"])))
        if answer
        else f"pid {ranks[0].pid}, which does not answer"
    )
    return f"{len(ranks)} ranks here, {command}"


def describe_job(state: JobState) -> Iterator[str]:
    """Yield the lines of a job's description: a table with a row per rank, then which rank waits for which."""
    case, hosts = state.case, state.hosts
    slow = {one.rank: f"{one.ratio:.2f} x" for one in state.slow}
    yield one_line(f"job {state.job}: {' '.join(state.command)}")
    yield ""
    rows = []
    for seen, verdict in zip(case.seen, case.diagnosis.verdicts, strict=True):
        heartbeat = seen.heartbeat
        does = (
            (heartbeat.step, messages.call_of(heartbeat), heartbeat.where, f"{heartbeat.since:.0f} s")
            if heartbeat
            else (None,) * 4
        )
        rows.append((seen.rank, hosts[seen.rank], *does, slow.get(seen.rank), verdict))
    yield from format_table(("rank", "host", "step", "in", "at", "for", "slow", "verdict"), rows).splitlines()
    yield ""
    if state.well:
        yield "all ranks make progress"
    elif case.diagnosis.culprits or case.diagnosis.waiting:
        yield messages.hang_headline(case, hosts)
        now = case.when
        for rank in case.diagnosis.culprits[: messages.MOST]:
            yield from messages.describe_culprit(case.seen[rank], case.diagnosis.verdicts[rank], hosts[rank], now)
