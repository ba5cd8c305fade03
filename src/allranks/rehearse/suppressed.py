"""Find out which findings a comment in the program suppresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allranks.check.results.suppress import hits, suppressions
from allranks.check.sources.notebook import text_of
from allranks.findings import Finding


def without_suppressed(findings: Sequence[Finding], texts: Mapping[str, bytes]) -> list[Finding]:
    """Return the findings that no comment at their line suppresses (``# allranks: ignore[AR405] reason``)."""
    known = {one.code for one in findings}
    comments = [one for path, raw in texts.items() for one in suppressions(path, text_of(path, raw), known)[0]]
    return [one for one in findings if not hits(one, [c for c in comments if c.comment.path == one.place.path])]
