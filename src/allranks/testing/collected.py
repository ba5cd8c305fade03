"""Run the body of a test in a rank. The tests were collected once, before the ranks were forked.

The fork server collects the files that have tests of several ranks. So a rank starts with everything imported and runs
the body of one test at once. A rank with a new interpreter (if forking was unsafe) collects the tests itself.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import sys
from pathlib import Path

import pytest
from _pytest.config import _prepareconfig
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item

# Else a thread of each rank imports it, a second later: pytest then parses it, while it may parse another module in the
# main thread, and Python 3.11 fails where two threads parse ("AST constructor recursion depth mismatch").
import allranks.hang.launched  # noqa: F401

RANK_FOLDER: pytest.StashKey[Path] = pytest.StashKey()
_sessions: list[pytest.Session] = []
_path: list[str] = []
# The fork server has imported allranks before pytest can rewrite its assertions; it has none.
_IMPORTED_ALREADY = ("-W", "ignore::pytest.PytestAssertRewriteWarning")


def collect_tests(arguments: list[str], files: list[str]) -> None:
    """Collect the tests of these files, with the options (but not the selection) of pytest's own command line."""
    words = io.StringIO()
    with contextlib.redirect_stdout(words):
        config = _prepareconfig([*arguments, "--capture=no", *_IMPORTED_ALREADY])
        config.args[:] = files
        # The main process selects tests one by one: here every test must be found.
        for option, value in {"keyword": "", "markexpr": "", "lf": False, "failedfirst": False, "dist": "no"}.items():
            if hasattr(config.option, option):
                setattr(config.option, option, value)
        config.stash[RANK_FOLDER] = Path()
        config._do_configure()
        session = pytest.Session.from_config(config)
        config.hook.pytest_sessionstart(session=session)
        config.hook.pytest_collection(session=session)
    if session.testsfailed:
        raise RuntimeError(f"the tests could not be collected a second time, for the ranks:\n{words.getvalue()}")
    _sessions.append(session)
    _path[:] = sys.path


def run_test(arguments: list[str], files: list[str], test_id: str, folder: str) -> None:
    """Run one test in this rank; write its reports to ``folder``/rank-<r>.json.

    Exits with code 1 unless the test passed.
    """
    if not _sessions:
        collect_tests(arguments, files)
    session = _sessions[0]
    sys.path[:] = _path
    config = session.config
    config.stash[RANK_FOLDER] = Path(folder)
    _follow_environment()
    faulthandler.enable()  # pytest's own would write to the terminal of the process that forked this one
    found = [item for item in session.items if item.nodeid == test_id]
    if not found:
        raise RuntimeError(
            f"{test_id} was not found when its file was collected for the ranks; give the test a name "
            "that is the same in every collection."
        )
    with catch_warnings_for_item(config=config, ihook=found[0].ihook, when="runtest", item=found[0]):
        reports = runtestprotocol(found[0], nextitem=None, log=False)
    data = [config.hook.pytest_report_to_serializable(config=config, report=report) for report in reports]
    whole = Path(folder) / f"rank-{os.environ['ALLRANKS_RANK']}.json"
    part = whole.with_suffix(".part")
    part.write_text(json.dumps(data))
    part.rename(whole)
    # A rank that stops before the others' next collective ends the job, so that they do not wait for it in vain.
    if any(not report.passed for report in reports):
        sys.exit(1)


def _follow_environment() -> None:
    """Set the number of CPU devices in JAX, which was imported before the fork, as this rank's environment says."""
    jax = sys.modules.get("jax")
    if jax is not None and (devices := os.environ.get("JAX_NUM_CPU_DEVICES")):
        jax.config.update("jax_num_cpu_devices", int(devices))
