"""The pure parts of preflight: batches, loaders, facts, variables and the table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.arrays.batch import BatchPlan
from allranks.findings import Row, error, notes, ok, warning
from allranks.readiness.batch import LoaderSettings, first_rows_row, global_rows_row, loader_rows, plan_row
from allranks.readiness.comparison import (
    NamedValue,
    difference_row,
    distinct_row,
    find_differences,
    first_rank_of_groups,
    merge_rows,
)
from allranks.readiness.variables import decisive_variables, other_variables, unread_row
from allranks.report.readiness import Readiness

PLAN = BatchPlan(64, ranks=2, devices=2, accumulation=2)


def test_a_batch_that_cannot_be_cut_is_wrong_and_names_those_that_can() -> None:
    row, plan = plan_row(62, 2, 2, 1)
    assert (row.verdict, plan) == ("error", None)
    assert row.remedy == "The nearest batch sizes are 60 and 64."
    row, plan = plan_row(64, 2, 2, 2)
    assert (row.verdict, plan) == ("ok", PLAN)
    assert row.texts[0] == "64 = 2 ranks x 2 devices x 8 x 2 accumulation"


@pytest.mark.parametrize(
    ("shape", "plan", "verdict", "says"),
    [
        ((32, 7), PLAN, "ok", "32 rows of a batch"),
        ((16, 7), PLAN, "ok", "micro-batch"),
        ((2, 8, 7), PLAN, "ok", "2 devices x 8"),
        ((2, 16, 7), PLAN, "ok", "2 devices"),
        ((2, 7), PLAN, "error", "its part is 32 of 64, 16 at once"),
        ((64, 7), PLAN, "error", "bring only those of this rank"),
        ((31, 7), PLAN, "error", "Set the loader's batch size"),
        ((8, 7), None, "ok", "8 rows on 2 devices"),
        ((6, 7), None, "error", "Pass a multiple of 4 rows"),
        ((2, 5, 7), None, "ok", "2 rows"),
        ((), None, "error", "has no dimension"),
    ],
)
def test_leading_dimensions(shape: tuple[int, ...], plan: BatchPlan | None, verdict: str, says: str) -> None:
    """A rank's rows, a micro-batch of them, or one part for each device as pmap has it; nothing else."""
    row = first_rows_row({"x": shape}, plan, devices=2, accumulation=2)
    assert row.verdict == verdict
    assert says in f"{row.texts[0]} {row.remedy}"


def test_leaves_with_different_numbers_of_rows_are_wrong() -> None:
    row = first_rows_row({"x": (8, 2), "y": (7,)}, None, devices=1, accumulation=1)
    assert row.verdict == "error"
    assert "8 in 'x', 7 in 'y'" in row.texts[0]


def test_a_batch_that_spans_all_ranks_has_the_rows_of_all() -> None:
    assert global_rows_row({"x": (64, 2), "scale": ()}, PLAN).verdict == "ok"
    assert global_rows_row({"x": (16, 2)}, BatchPlan(64, 2, 2, 4)).verdict == "ok"
    assert global_rows_row({"x": (128, 2)}, PLAN).texts[0] == "global arrays of 128 rows; the batch has 64"


def test_rows_that_may_be_a_micro_batch_or_one_rank_s_are_told_as_both() -> None:
    """With as many accumulation steps as ranks, their numbers are the same."""
    row = global_rows_row({"x": (32, 2)}, PLAN)
    assert row.verdict == "warning"
    assert row.texts[0] == "global arrays of 32 rows: those of a micro-batch, or of one rank, taken for all"


def loader_settings(**changes) -> LoaderSettings:
    good = {"batch_size": 16, "drop_last": True, "samples": 100, "replicas": 2, "replica": 1, "workers": 0}
    return LoaderSettings(**{**good, "forks": True, **changes})


@pytest.mark.parametrize(
    ("changes", "check", "verdict", "says"),
    [
        ({}, "drop_last", "ok", "every batch has 16 rows"),
        ({"drop_last": False}, "drop_last", "error", "2 rows instead of 16"),
        ({"drop_last": False, "samples": 64}, "drop_last", "ok", "every batch"),
        ({"batch_size": 64}, "loader batch size", "error", "DataLoader(batch_size=16)"),
        ({"replicas": None, "replica": None}, "each rank its own rows", "error", "every rank reads the whole"),
        ({"replica": 0}, "each rank its own rows", "error", "rank 0 of 2, this is rank 1 of 2"),
        ({"replicas": 4}, "each rank its own rows", "error", "num_replicas=2, rank=1"),
        ({"replicas": None, "samples": None}, "each rank its own rows", "warning", "is unknown"),
        ({"workers": 2}, "loader workers", "warning", "spawn"),
    ],
)
def test_a_loader(changes: dict[str, object], check: str, verdict: str, says: str) -> None:
    rows = {row.topic: row for row in loader_rows(loader_settings(**changes), PLAN, rank=1, ranks=2, uses_jax=True)}
    assert rows[check].verdict == verdict
    assert says in f"{rows[check].texts[0]} {rows[check].remedy}"
    assert [row.topic for row in rows.values() if row.verdict != "ok"] == ([check] if verdict != "ok" else [])


CONFIG = NamedValue("same: config", {"lr": 0.1, "layers": [1, 2]}, "equal", "Broadcast it.")


def test_a_value_that_differs_is_reported_by_its_first_different_paths() -> None:
    """Who has what, at which place; equal elements are left out."""
    values = [CONFIG.value, {"lr": 0.2, "layers": [1, 2]}, CONFIG.value, {"lr": 0.2, "layers": [1, 2]}]
    reports = [{"a": "x", CONFIG.check: NamedValue("", value, "", "").digest} for value in values]
    groups = find_differences(reports)
    assert groups == {CONFIG.check: [[0, 2], [1, 3]]}
    assert first_rank_of_groups(groups[CONFIG.check]) == [0, 1]
    row = difference_row(CONFIG, groups[CONFIG.check], dict(enumerate(values)))
    assert (row.verdict, row.texts[0]) == ("error", "lr: ranks 0, 2: 0.1; ranks 1, 3: 0.2")


def test_what_only_some_ranks_have_counts_unless_a_value_is_partial() -> None:
    """Rank 0 may have imported more; a file that all have must be equal."""
    there = {0: {"a.py": "1", "plots.py": "9"}, 1: {"a.py": "1"}}
    assert difference_row(NamedValue("code", {}, "2 files", "", partial=True), [[0], [1]], there) == ok(
        "code", "2 files"
    )
    row = difference_row(NamedValue("code", {}, "2 files", "Copy."), [[0], [1]], there)
    assert row.texts[0] == 'plots.py: rank 0: "9"; rank 1: (none)'
    there[1]["a.py"] = "2"
    assert (
        'a.py: rank 0: "1"; rank 1: "2"'
        in difference_row(NamedValue("code", {}, "", "", partial=True), [[0], [1]], there).texts[0]
    )


def test_a_check_that_only_some_ranks_made_differs() -> None:
    assert find_differences([{"a": "1"}, {}]) == {"a": [[0], [1]]}


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=3), min_size=1, max_size=6))
def test_distinct_means_no_two_anywhere(reports: list[list[str]]) -> None:
    """Neither on one rank nor on two."""
    everything = [part for parts in reports for part in parts]
    row = distinct_row("keys", reports)
    assert (row.verdict == "ok") == (len(everything) == len(set(everything)))


def test_who_holds_the_same_is_named() -> None:
    assert (
        distinct_row("keys", [["a", "b"], ["c", "b"]]).texts[0].startswith("ranks 0 and 1 hold the same value; 1 of 4")
    )
    assert distinct_row("keys", [["a", "a"]]).texts[0].startswith("rank 0 holds the same value at places 0 and 1")


def test_variables_that_nothing_reads_are_named_with_what_was_meant() -> None:
    """Those that are known, or stand in what is installed, are none of them; a near miss is told."""
    environ = {
        "XLA_RENDEZVOUS_WAIT_SECONDS": "120",
        "XLA_FLAGS": "",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUGG": "INFO",
        "JAX_OF_TOMORROW": "1",
        "MY_OWN": "1",
        "JAX_PROCESS_COUNT": "4",
    }
    row = unread_row(environ, lambda name: name == "JAX_OF_TOMORROW")
    assert row.verdict == "warning"
    assert row.texts[0] == "nothing reads JAX_PROCESS_COUNT, NCCL_DEBUGG, XLA_RENDEZVOUS_WAIT_SECONDS"
    assert "did you mean NCCL_DEBUG" in row.remedy
    assert "allranks run --rendezvous-timeout" in row.remedy
    ours = {"JAX_PROCESS_COUNT": "4", "JAX_PROCESS_INDEX": "0", "ALLRANKS_RANK": "0"}
    assert unread_row(ours, lambda _: False).verdict == "ok"


def test_what_is_each_ranks_own_is_not_compared() -> None:
    environ = {"JAX_PLATFORMS": "cpu", "JAX_PROCESS_INDEX": "3", "NCCL_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "2"}
    assert decisive_variables(environ) == {"JAX_PLATFORMS": "cpu"}
    assert other_variables(environ) == {"OMP_NUM_THREADS": "2"}


def test_rows_of_all_ranks_become_one_table() -> None:
    """Equal rows stand once with their ranks, named only where others see it differently; what is wrong is told."""
    rows = [
        (0, ok("a", "fine")),
        (0, error("b", "bad", remedy="Mend it.")),
        (1, error("b", "bad", remedy="Mend it.")),
        (1, warning("c", "odd", remedy="Look.")),
        (2, error("b", "worse", remedy="Mend it.")),
        (0, warning("d", "all say so", remedy="")),
    ]
    found = merge_rows(rows, {"a": 2, "c": 2})
    assert found == [
        ok("a", "fine"),
        Row("b", "error", notes("bad"), "Mend it.", (0, 1)),
        Row("b", "error", notes("worse"), "Mend it.", (2,)),
        Row("c", "warning", notes("odd"), "Look.", (1,)),
        warning("d", "all say so", remedy=""),
    ]
    readiness = Readiness(tuple(found), ("a",), 3)
    assert [row.texts[0] for row in readiness.errors] == ["bad", "worse"]
    assert "b          error    ranks 0-1: bad" in str(readiness)
    assert str(readiness).endswith("c: Look.\n\n1 host, 3 ranks: 2 errors, 2 warnings, 1 ok")
    assert readiness.document("allranks preflight")["ready"] is False
