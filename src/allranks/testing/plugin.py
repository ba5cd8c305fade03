"""The pytest plugin: ``@pytest.mark.world(n=4, devices=2)`` runs a test's body on each of n ranks.

    @pytest.mark.world(n=4, devices=2)
    def test_the_largest_rank_is_known_to_all(world):
        assert world.max(world.rank) == 3

Each rank is a separate process, and fixtures are set up in each. pytest shows the assertion of the rank that fails
first, with the merged output of all ranks. Arguments of the mark:

- ``n``: the number of ranks. ``devices``: the number of CPU devices of each rank.
- ``backend``: "jax" or "torch", for the fixture ``world``.
- ``timeout``: in seconds, for the whole test.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from allranks import agent
from allranks.launch.console import Console
from allranks.launch.engines import local
from allranks.launch.fork_server import ForkServer
from allranks.launch.job import Call, Job
from allranks.launch.result import JobResult
from allranks.testing import reports
from allranks.testing.collected import RANK_FOLDER
from allranks.world.base import World
from allranks.world.detect import init

TIMEOUT = 60.0
_RANKS: pytest.StashKey[_TestRanks] = pytest.StashKey()


@dataclass(frozen=True, slots=True)
class WorldMark:
    """The arguments of a test's ``pytest.mark.world``. ``timeout`` is in seconds."""

    n: int
    devices: int = 1
    backend: str | None = None
    timeout: float = TIMEOUT


def mark_of(item: pytest.Item) -> WorldMark | None:
    """Return the arguments of the test's mark, or None for an ordinary test. Raises UsageError for a wrong mark."""
    marker = item.get_closest_marker("world")
    if marker is None:
        return None
    try:
        mark = WorldMark(*marker.args, **marker.kwargs)
    except TypeError as error:
        raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.world: {error}. Write @pytest.mark.world(n=4).") from None
    if mark.n < 1 or mark.devices < 1:
        raise pytest.UsageError(f"{item.nodeid}: {mark}: n and devices must be at least 1.")
    return mark


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Let tests of one rank on virtual CPU devices launch any number of steps without awaiting them."""
    agent.load("allranks_agent_xla_threads").attach()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "world(n, devices=1, backend=None, timeout=60): run the test's body on each of n ranks (processes); "
        "the fixture `world` joins them",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test on its ranks, and report the result as if the test had run in this process."""
    mark = mark_of(item)
    if mark is None or RANK_FOLDER in item.config.stash:
        return None
    if _RANKS not in item.config.stash:
        item.config.stash[_RANKS] = _TestRanks(item.session)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in item.config.stash[_RANKS].run_test(item, mark):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    # Fixtures that the test before has left for its neighbours are not used by this one.
    item.session._setupstate.teardown_exact(nextitem)
    return True


def pytest_unconfigure(config: pytest.Config) -> None:
    ranks = config.stash.get(_RANKS, None)
    if ranks is not None:
        ranks.close()


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """The world of the ranks that run this test.

    Every rank gets its own object. Needs ``@pytest.mark.world(n=...)``.
    """
    mark = mark_of(request.node)
    if mark is None:
        raise pytest.UsageError(
            f"{request.node.nodeid} uses the fixture `world`; mark it with @pytest.mark.world(n=4)."
        )
    return init(mark.backend, timeout=mark.timeout)


@pytest.fixture
def shared_tmp_path(request: pytest.FixtureRequest) -> Path:
    """A new folder that is the same on every rank. (``tmp_path`` is a different folder on each rank.)"""
    folder = request.config.stash[RANK_FOLDER] / "shared"
    folder.mkdir(exist_ok=True)
    return folder


class _TestRanks:
    """Starts ranks for the tests of one session, by a fork server that has collected the tests already."""

    def __init__(self, session: pytest.Session) -> None:
        config = session.config
        positional = set(config.option.file_or_dir or ())
        arguments = [str(word) for word in config.invocation_params.args if str(word) not in positional]
        self._arguments = [*arguments, f"--rootdir={config.rootpath}"]
        files = {str(item.path) for item in session.items if item.get_closest_marker("world")}
        self._files = sorted(files)
        self._cwd = str(config.invocation_params.dir)
        self._folder = tempfile.TemporaryDirectory(prefix="allranks-")
        self._fork_server: ForkServer | None = None
        self._count = 0

    def run_test(self, item: pytest.Item, mark: WorldMark) -> list[pytest.TestReport]:
        """Run one test on its ranks; return the combined reports."""
        self._count += 1
        folder = Path(self._folder.name) / str(self._count)
        folder.mkdir()
        arguments = json.dumps([self._arguments, self._files, item.nodeid, str(folder)])
        target = Call("allranks.testing.collected:run_test", arguments)
        job = Job(target, mark.n, devices=mark.devices, timeout=mark.timeout)
        output = io.BytesIO()
        console = Console(mark.n, out=output, color=False, live=False)
        result = local.run(job, console, cwd=self._cwd, fork_server=self._warm_fork_server())
        console.close()
        text = output.getvalue().decode(errors="replace")
        found = dict(_reports_in(folder, item.config))
        first = result.first_failure.rank if result.first_failure else None
        told = reports.combine_reports(found, size=mark.n, first_failed_rank=first, output=text)
        if result.exit_code and all(report.passed for report in told):
            told.append(reports.report_of_dead_ranks(item, _why(result), text, result.seconds))
        return told

    def close(self) -> None:
        if self._fork_server is not None:
            self._fork_server.close()
        self._folder.cleanup()

    def _warm_fork_server(self) -> ForkServer:
        if self._fork_server is None:
            self._fork_server = ForkServer(os.environ)
            arguments = json.dumps([self._arguments, self._files])
            ready = self._fork_server.prepare(Call("allranks.testing.collected:collect_tests", arguments))
            if ready.obstacle:
                print(f"allranks: every rank of every test starts its own interpreter: {ready.obstacle}")
        return self._fork_server


def _reports_in(folder: Path, config: pytest.Config) -> Iterator[tuple[int, list[pytest.TestReport]]]:
    for file in sorted(folder.glob("rank-*.json")):
        found = [
            config.hook.pytest_report_from_serializable(config=config, data=data)
            for data in json.loads(file.read_text())
        ]
        for report in found:
            if isinstance(report.longrepr, list):  # JSON has no tuples, and pytest wants (path, line, reason) as one
                report.longrepr = tuple(report.longrepr)
        yield int(file.stem.removeprefix("rank-")), found


def _why(result: JobResult) -> str:
    failure = result.first_failure
    if failure is None:
        return f"{result.cause} (exit code {result.exit_code})"
    return f"{failure.headline()}\n{failure.traceback}"
