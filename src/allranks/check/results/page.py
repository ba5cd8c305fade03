"""The page of a rule, drawn from its class: documentation, examples, and the table of all rules. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from inspect import cleandoc
from types import MappingProxyType

from allranks.check.measured import measured
from allranks.check.retired import RETIRED, Retired
from allranks.check.rule import ABOUT_ITSELF, FOUND, Example, Rule

FAMILIES = MappingProxyType(
    {
        "AR1": "effects on every rank",
        "AR2": "collectives that not all ranks reach",
        "AR3": "data",
        "AR4": "saving",
        "AR5": "loading",
        "AR6": "start-up and devices",
        "AR7": "randomness and determinism",
        "AR8": "hang hygiene",
        ABOUT_ITSELF: "about the check itself",
    }
)
LONG = 300
MADE_BY = "This page is drawn from the rule: `make rules`."


def page(rule: Rule) -> str:
    """Return the page in Markdown: what the rule says of itself, then code that it finds and code that is right."""
    parts = [f"# {rule.code} {rule.name}", facts(rule), cleandoc(type(rule).__doc__ or "")]
    for title, examples in (("Found", rule.bad), ("Not found", rule.good)):
        shown = [part for text in examples for part in _example(Example.of(text))]
        if shown:
            parts += [f"## {title}", *shown]
    return "\n\n".join(parts) + "\n"


def facts(rule: Rule) -> str:
    """Return its severity, whether it runs by default, its row of the readiness report, how often it was right."""
    runs = "runs by default" if rule.default else f"runs if selected (`--extend-select {rule.code}`)"
    known = measured(rule.code)
    said = f" In the newest unread code {known.right} of {known.read} findings were right."
    right = said if known.read else ""
    return f"{rule.severity.capitalize()}, {runs}. Row of the readiness report: {rule.row}.{right}"


def index(rules: Iterable[Rule]) -> str:
    """Return the page that names all rules, family by family."""
    lines = [
        "# Rules of `allranks check`",
        "",
        MADE_BY.replace("This page is", "These pages are").replace("rule:", "rules:"),
        "",
        "Right: of its findings in the newest unread code, how many were right.",
    ]
    family = ""
    for rule in rules:
        if rule.code[:3] != family:
            family = rule.code[:3]
            lines += [
                "",
                f"## {family}xx: {FAMILIES[family]}",
                "",
                "| code | name | severity | by default | right | fix |",
            ]
            lines += ["|---|---|---|---|---|---|"]
        safety = section(rule, "Fix safety")
        fix = "yes" if safety and not safety.startswith("There is no automatic fix") else ""
        runs = "yes" if rule.default else "no"
        known = measured(rule.code)
        right = f"{known.right} of {known.read}" if known.read else ""
        lines.append(f"| [{rule.code}]({rule.code}.md) | {rule.name} | {rule.severity} | {runs} | {right} | {fix} |")
    return "\n".join(lines) + "\n"


def retired_table() -> str:
    """Return the table of the rules that are no more."""
    lines = [
        "## Retired",
        "",
        "These rules find nothing any more. A comment, a baseline or a setting may still name them.",
        "",
    ]
    lines += ["| code | name | why | what to use instead |", "|---|---|---|---|"]
    lines += [f"| {one.code} | {one.name} | {one.why} | {one.instead} |" for one in RETIRED]
    return "\n".join(lines) + "\n"


def retired_page(one: Retired) -> str:
    """Return what there is to say of a rule that is no more."""
    return f"# {one.code} {one.name}\n\nRetired: it finds nothing any more. {one.why}\n\nUse instead: {one.instead}"


def section(rule: Rule, title: str) -> str:
    """Return a section of the documentation, nothing if it has none."""
    text = cleandoc(type(rule).__doc__ or "")
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return match[1].strip() if match else ""


def summary(rule: Rule) -> str:
    """Return the first sentence of what the rule does; of a long one, what comes before its colon or semicolon."""
    sentence = re.split(r"(?<=\.)\s", " ".join(section(rule, "What it does").split()), maxsplit=1)[0]
    return sentence if len(sentence) < LONG else f"{re.split(r'[:;] ', sentence, maxsplit=1)[0]}."


def _example(example: Example) -> Iterator[str]:
    for path, text in example.files.items():
        marked = {line for where, line in example.found if where == path}
        lines = [f"{line}{FOUND}" if at in marked else line for at, line in enumerate(text.splitlines(), start=1)]
        title = f"`{path}`:\n\n" if len(example.files) > 1 else ""
        fence = "~~~" if "```" in text else "```"
        language = "python" if path.endswith(".py") else "yaml" if path.endswith(".yaml") else "bash"
        yield "\n".join([f"{title}{fence}{language}", *lines, fence])
