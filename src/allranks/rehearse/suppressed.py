"""Find out which findings a comment in the program suppresses."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.check.results.suppress import suppressed, suppressions
from allranks.check.sources.text import text_of
from allranks.findings import Finding


def is_suppressed(finding: Finding, texts: Mapping[str, bytes]) -> bool:
    """Return whether a comment at the line of a finding suppresses it (``# allranks: ignore[AR405] reason``)."""
    path = finding.place.path
    if path not in texts:
        return False
    comments, _ = suppressions(path, text_of(path, texts[path]), {finding.code})
    return not suppressed([finding], comments)[0]
