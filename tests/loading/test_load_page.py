"""docs/load.md and docs/load-quantized.md are true."""

from __future__ import annotations

from pathlib import Path

import pages
import pytest


@pytest.mark.needs("jax", "torch")
def test_the_snippets_of_the_page_run(tmp_path: Path) -> None:
    """They print the errors and the table that they are about."""
    out = pages.printed("load.md", tmp_path, snippets=4)
    assert 'did you mean: rename={"model.*": "*"}' in out
    assert "elevation_alpha: float32[] (allowed by '*elevation_alpha')" in out
    assert "val_loss: expected 0.3557, found 1.75" in out, out


def test_the_page_is_short_and_leads_to_pages_that_are_there() -> None:
    pages.check_links("load.md", most_lines=190)


@pytest.mark.needs("torch", "safetensors")
def test_the_snippet_about_quantised_weights_runs(tmp_path: Path) -> None:
    out = pages.printed("load-quantized.md", tmp_path, snippets=1)
    assert "float8_e4m3fn (2, 2)" in out
    pages.check_links("load-quantized.md", most_lines=60)
