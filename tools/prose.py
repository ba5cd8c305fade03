"""Report sentences of the docs that are too long, and words for which the glossary has a better one.

    python tools/prose.py [PAGE ...]
    python tools/prose.py --docstrings

Without a page, it reads those that tools/prose.toml names. With --docstrings it reads the docstrings of the library,
outside `check`. Code is left out, in blocks and between backticks. In the cells of tables only the words are searched
for. Exit code 1: something was found.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFIG = Path(__file__).with_name("prose.toml")
_SENTENCE_END = re.compile(r"[.!?:;][*)\"]*\s+(?=[\"(*]*[A-Z`])")
_ITEM = re.compile(r"^\s*(?:(?:[-*+]|\d+\.)\s+|#+\s+)")


@dataclass(frozen=True, slots=True)
class Config:
    """What tools/prose.toml says: the longest sentence, in words; the words to replace; and which pages are read."""

    longest: int
    replace: dict[str, str]
    pages: tuple[str, ...]
    without: tuple[str, ...]


def configuration(path: Path = CONFIG) -> Config:
    """Return the configuration of a file."""
    read = tomllib.loads(path.read_text())
    return Config(read["longest"], read["replace"], tuple(read["pages"]), tuple(read["without"]))


def paragraphs(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the paragraphs of a page: the number of the first line, the text, and whether it is a row of a table."""
    first, lines, in_code = 0, list[str](), False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        is_row = line.lstrip().startswith("|")
        if lines and (is_fence or is_row or not line.strip() or _ITEM.match(line)):
            yield first, " ".join(lines), False
            lines = []
        if is_row and not in_code:
            yield number, line, True
        elif not in_code and line.startswith("#"):
            yield number, line, False
        elif not in_code and not is_fence and line.strip():
            first = first if lines else number
            lines.append(line.strip())
        in_code ^= is_fence


def without_code(text: str) -> str:
    """Return the text with one backtick in the place of each piece of code, and with links as their words."""
    text = re.sub(r"(`+)[^`]*\1", "`", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def faults(text: str, config: Config) -> Iterator[tuple[int, str]]:
    """Yield the number of a line and what is wrong in the paragraph that begins there."""
    for number, paragraph, is_row in paragraphs(text):
        plain = without_code(paragraph)
        for pattern, better in config.replace.items():
            for found in re.finditer(rf"(?<![\w/.])(?:{pattern})(?![\w/]|\.\w)", plain, re.IGNORECASE):
                yield number, f"{found[0]!r}: write {better}"
        for sentence in [] if is_row else _SENTENCE_END.split(_ITEM.sub("", plain, count=1)):
            if (words := len(sentence.split())) > config.longest:
                yield number, f"a sentence of {words} words, at most {config.longest}: {sentence[:60]} ..."


def pages(config: Config) -> list[Path]:
    """Return the pages that the configuration names."""
    found = {path for pattern in config.pages for path in ROOT.glob(pattern)}
    return sorted(found - {ROOT / page for page in config.without})


def docstring_faults(config: Config) -> list[str]:
    """Return the place of each docstring with a fault, and what is wrong there."""
    found = []
    for path in sorted((ROOT / "src" / "allranks").rglob("*.py")):
        if "check" not in path.relative_to(ROOT).parts:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
                    found += [f"{place}: {fault}" for _, fault in faults(ast.get_docstring(node) or "", config)]
    return found


def page_faults(config: Config, chosen: list[Path]) -> list[str]:
    """Return the place of each paragraph with a fault, and what is wrong there."""
    return [
        f"{page.resolve().relative_to(ROOT)}:{number}: {fault}"
        for page in chosen
        for number, fault in faults(page.read_text(), config)
    ]


def main(arguments: list[str]) -> int:
    """Print what is wrong in these pages, or in all; return the exit code."""
    config = configuration()
    if arguments == ["--docstrings"]:
        found = docstring_faults(config)
    else:
        found = page_faults(config, [Path(name) for name in arguments] or pages(config))
    print("\n".join([*found, ""]), end="")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
