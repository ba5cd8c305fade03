"""The plugin on real ranks, used as a user would use it."""

from __future__ import annotations

import os
import warnings
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from allranks.world.base import World

pytest_plugins = ["pytester"]


@pytest.mark.world(n=3)
def test_the_body_runs_on_every_rank(world: World, shared_tmp_path: Path, tmp_path: Path) -> None:
    """Each rank is a process of its own, and they meet."""
    (shared_tmp_path / str(world.rank)).write_text(str(os.getpid()))
    world.barrier()
    pids = {int(file.read_text()) for file in shared_tmp_path.iterdir()}
    assert world.size == 3
    assert len(pids) == 3
    assert os.getpid() in pids
    assert len(set(world.all_gather(str(tmp_path)))) == 3


@pytest.mark.world(n=2, devices=2, backend="jax")
@pytest.mark.parametrize("factor", [1, 10])
def test_parameters_and_devices_reach_the_ranks(world: World, factor: int) -> None:
    import jax

    assert jax.local_device_count() == 2
    assert jax.device_count() == 4
    assert world.max(world.rank * factor) == factor


@pytest.mark.world(n=2)
@pytest.mark.filterwarnings("ignore:of no account")
def test_filters_of_warnings_hold_in_the_ranks(world: World) -> None:
    """Those of the configuration, which makes all an error here, and then those of the mark."""
    warnings.warn("of no account", stacklevel=1)
    with pytest.raises(UserWarning, match=f"from rank {world.rank}"):
        warnings.warn(f"from rank {world.rank}", stacklevel=1)


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> tuple[pytest.RunResult, str]:
    pytester.makepyfile(source)
    installed = entry_points(group="pytest11", name="allranks")
    load = () if installed else ("-p", "allranks.testing.plugin")
    result = pytester.runpytest_subprocess(*load, "-p", "no:cacheprovider", *arguments)
    return result, result.stdout.str() + result.stderr.str()


FAILING = """
    import pytest

    @pytest.mark.world(n=3)
    def test_one_rank_asserts(world):
        print("hello from a rank")
        assert world.rank != 2, "two is one too many"

    @pytest.mark.world(n=3)
    def test_one_rank_asserts_while_the_others_wait(world):
        if world.rank == 1:
            assert [1, 2] == [1, 3]
        world.barrier()

    @pytest.mark.world(n=2)
    def test_a_rank_dies(world):
        import os
        import signal
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        world.barrier()

    @pytest.mark.world(n=2, timeout=3)
    def test_a_test_that_hangs(world):
        import threading
        threading.Event().wait()

    @pytest.mark.world(n=2)
    def test_that_is_skipped(world):
        pytest.skip("not today")

    @pytest.mark.world(n=2)
    def test_that_passes(world):
        world.barrier()

    def test_of_one_process():
        assert True
"""


def test_what_a_rank_raises_is_what_pytest_shows(pytester: pytest.Pytester) -> None:
    """Failures of every kind are told by rank, and the tests after them still run."""
    result, text = run(pytester, FAILING)
    result.assert_outcomes(passed=2, failed=4, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: two is one too many*",
            "rank 2 of 3 is shown above.*",
            "*hello from a rank*",
            "*assert [[]1, 2[]] == [[]1, 3[]]*",
            "rank 1 of 3 is shown above.*",
            "rank 1 (host *) failed: *killed by SIGKILL*",
            "*time limit of 3 s*",
        ]
    )
    assert "FAILED" in text


SKIPPING = """
    import pytest

    @pytest.mark.world(n=2)
    @pytest.mark.skipif(True, reason="no gpu")
    def test_no_rank_starts(world):
        assert False

    @pytest.fixture
    def absent():
        pytest.skip("no data")

    @pytest.mark.world(n=2)
    def test_fixture_skips_on_all(world, absent):
        assert False

    @pytest.mark.world(n=2)
    def test_one_rank_skips(world):
        if world.rank == 1:
            pytest.skip("not here")
        world.barrier()

    @pytest.mark.world(n=3)
    @pytest.mark.xfail(strict=True, reason="a known bug")
    def test_one_rank_fails_as_expected(world):
        assert world.rank != 1

    @pytest.mark.world(n=2)
    @pytest.mark.xfail(strict=True)
    def test_all_pass_unexpectedly(world):
        world.barrier()
"""


def test_skips_and_expected_failures_have_their_reasons(pytester: pytest.Pytester) -> None:
    """As in a test of one process; a skip on some of the ranks is a failure that says so."""
    result, _ = run(pytester, SKIPPING, "-ra")
    result.assert_outcomes(skipped=2, xfailed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "rank 1 skipped the test (not here), rank 0 did not. Skip it on every rank, or on none:*",
            "[[]XPASS(strict)[]]*",
            "SKIPPED * no gpu",
            "SKIPPED * no data",
            "XFAIL *test_one_rank_fails_as_expected - a known bug",
        ]
    )


def test_a_mark_that_says_nothing_is_refused(pytester: pytest.Pytester) -> None:
    result, text = run(pytester, "import pytest\n@pytest.mark.world()\ndef test_x(world): pass\n")
    assert result.ret != 0
    assert "@pytest.mark.world(n=4)" in text


def test_the_fixture_needs_the_mark(pytester: pytest.Pytester) -> None:
    result, text = run(pytester, "def test_x(world): pass\n")
    result.assert_outcomes(errors=1)
    assert "mark it with @pytest.mark.world(n=4)" in text
