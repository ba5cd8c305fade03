"""Who speaks: the main rank for all, every rank for its own errors."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import allranks
from allranks.errors import CollectiveOnOneRank
from allranks.gate.log import RankFilter, configure_logging
from allranks.world.base import RankIdentity, World
from allranks.world.store import LocalStore

As = Callable[[int], World]


def world_of_two(rank: int) -> World:
    return World(RankIdentity(rank, 2, rank, ("here", "here"), "simulated"), LocalStore())


@pytest.fixture
def as_rank(monkeypatch: pytest.MonkeyPatch) -> As:
    """Make this process the given rank of two."""

    def become(rank: int) -> World:
        world = world_of_two(rank)
        monkeypatch.setattr("allranks.gate.log.current", lambda: world)
        return world

    return become


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """The root logger as a program finds it: without pytest's handlers, which are there in the body of a test."""
    logger = logging.getLogger()
    level, handlers = logger.level, logger.handlers[:]
    logger.handlers[:] = []
    try:
        yield logger
    finally:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def test_only_the_main_rank_prints(as_rank: As, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (1, 0):
        as_rank(rank)
        allranks.print("loss", rank, sep=" of rank ")
    assert capsys.readouterr().out == "loss of rank 0\n"


def test_log_without_configuration_goes_to_stderr(as_rank: As, capsys: pytest.CaptureFixture[str]) -> None:
    with bare_root():
        for rank in (1, 0):
            as_rank(rank)
            allranks.log("step %d of rank %d", 3, rank)
            allranks.log("lost by rank %d", rank, level=logging.ERROR)
        allranks.log("100%")
    assert capsys.readouterr().err.splitlines() == ["lost by rank 1", "step 3 of rank 0", "lost by rank 0", "100%"]


def test_the_filter_passes_the_main_ranks_records_and_everybodys_errors(as_rank: As) -> None:
    """INFO and WARNING come from rank 0 only, ERROR from every rank; each line has its rank."""
    reports = io.StringIO()
    to_memory = logging.StreamHandler(reports)
    to_memory.setFormatter(logging.Formatter("%(rank)s %(name)s %(message)s"))
    with bare_root() as root:
        root.addHandler(to_memory)
        configure_logging()
        configure_logging()
        for rank in (0, 1):
            as_rank(rank)
            logging.getLogger("model").info("info")
            logging.getLogger("model").warning("warning")
            logging.getLogger("model").error("error")
            allranks.log("50%% of %s", "all")
    assert [type(known) for known in to_memory.filters] == [RankFilter]
    assert reports.getvalue().splitlines() == [
        "0 model info",
        "0 model warning",
        "0 model error",
        "0 allranks 50% of all",
        "1 model error",
    ]


def test_configured_from_nothing_a_line_names_rank_and_place(as_rank: As, capsys: pytest.CaptureFixture[str]) -> None:
    as_rank(0)
    with bare_root():
        configure_logging(logging.WARNING)
        allranks.log("not this")
        allranks.log("this", level=logging.WARNING)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" rank 0 WARNING allranks: this")


def test_the_record_names_the_users_line(as_rank: As, caplog: pytest.LogCaptureFixture) -> None:
    as_rank(0)
    with caplog.at_level(logging.INFO):
        allranks.log("here")
    assert [record.filename for record in caplog.records] == ["test_log.py"]


def test_a_collective_hidden_in_a_value_is_refused(as_rank: As) -> None:
    """What only rank 0 turns into text must not need the others."""

    class Mean:
        def __str__(self) -> str:
            return str(world.all_gather(1))

    world = as_rank(0)
    with pytest.raises(CollectiveOnOneRank, match="all_gather"):
        allranks.print(Mean())
    with pytest.raises(CollectiveOnOneRank, match="all_gather"):
        allranks.log(Mean(), level=logging.ERROR)


def test_before_init_a_process_says_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """It knows of no other rank; its records say so."""
    reports = io.StringIO()
    handler = logging.StreamHandler(reports)
    handler.setFormatter(logging.Formatter("%(rank)s %(message)s"))
    with bare_root() as root:
        root.addHandler(handler)
        configure_logging()
        allranks.print("out")
        allranks.log("in")
    assert capsys.readouterr().out == "out\n"
    assert reports.getvalue() == "? in\n"
