"""Our own repository is clean under its own check."""

from __future__ import annotations

from pathlib import Path

from allranks.cli import check

ROOT = Path(__file__).parents[2]


def test_our_own_code_is_clean(monkeypatch, capsys) -> None:
    """The package, the examples and the benchmarks, with what pyproject.toml says of them; fixtures are no code."""
    monkeypatch.chdir(ROOT)
    code = check.main(["src", "examples", "bench", "--no-cache", "--output-format", "concise"])
    assert code == 0, capsys.readouterr().out
