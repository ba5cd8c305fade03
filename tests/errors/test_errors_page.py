"""Every public error has an example, and docs/errors.md shows what the examples raise."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("cloudpickle")  # what the cases are made of
pytest.importorskip("orjson")

from error_cases import CASES, Case
from page import PAGE, page, raised

from allranks import errors

ALL = {kind: case for group in CASES.values() for kind, case in group.items()}
# Their messages have what to do within: the expected value, a list, or the words of another rank or job.
WITHOUT_REMEDY = {errors.BadArgument, errors.Fenced, errors.NotReady, errors.NotResumed, errors.RemoteError}


def test_every_error_has_one_example() -> None:
    public = {kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__}
    counted = Counter(kind for group in CASES.values() for kind in group)
    assert counted == Counter(public - {errors.AllranksError})


@pytest.mark.parametrize(("kind", "case"), ALL.items(), ids=[kind.__name__ for kind in ALL])
def test_an_example_raises_its_error_and_ends_with_what_to_do(
    kind: type[errors.AllranksError], case: Case, tmp_path: Path
) -> None:
    error = raised(case, tmp_path)
    assert type(error) is kind
    if kind not in WITHOUT_REMEDY:
        assert error.remedy
        assert str(error).endswith(error.remedy)


@pytest.mark.parametrize("kind", ALL, ids=[kind.__name__ for kind in ALL])
def test_the_first_line_of_an_error_is_a_sentence(kind: type[errors.AllranksError]) -> None:
    first = (kind.__doc__ or "").partition("\n")[0]
    assert first.startswith("Raised when ")
    assert first.endswith(".")


def test_the_page_shows_what_the_examples_raise() -> None:
    """docs/errors.md: `python tests/errors/page.py --write` draws it again."""
    assert PAGE.read_text() == page()
