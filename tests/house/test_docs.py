"""The pages and the site that is built from them: links lead somewhere, no page and no public name is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as both GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M), re.M)
    named = re.findall(r'<a name="([^"]+)">', page.read_text())
    return {re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in headings} | set(named)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        there = (page.parent / path) if path else page
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert set(listed) == {page for page in pages if not re.match(r"rules/AR\d+\.md", page)}


def test_every_public_name_is_in_the_reference() -> None:
    public = (ROOT / "tests" / "house" / "public_names.txt").read_text().split()
    pages = "\n".join(page.read_text() for page in (DOCS / "reference").iterdir())
    documented = re.findall(r"^::: allranks\.(\w+)$", pages, re.M)
    assert sorted(documented) == sorted([*public, "errors"])
