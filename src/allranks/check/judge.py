"""Files in, findings out: notebooks unfolded, the engine asked, suppressions and ignores obeyed. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TypeAlias, cast

from allranks.check.config import Config, ConfigWrong
from allranks.check.engine import Settings, check
from allranks.check.kept import Judged
from allranks.check.measured import measured
from allranks.check.reading import Cache, Memory
from allranks.check.registry import all_rules
from allranks.check.results.page import summary
from allranks.check.results.suppress import Accepted
from allranks.check.retired import CODES as RETIRED
from allranks.check.rule import Assume, LocalRule, ProgramRule
from allranks.check.rules.ar900_unreadable_file import UnreadableFile
from allranks.check.sources.notebook import python_of
from allranks.check.sources.scripts import is_text
from allranks.check.sources.source import module_name
from allranks.findings import Confidence, Finding, Place
from allranks.report.base import RuleNote

Ahead: TypeAlias = Callable[[Mapping[str, bytes], Cache], AbstractContextManager[Cache]]
_SELECTOR = re.compile(r"ALL|AR\d{0,3}")


def settings_of(config: Config) -> Settings:
    """Return what the engine is told. Raises ConfigWrong for a selector that selects nothing."""
    if config.select == () and not config.extend_select:
        raise ConfigWrong("no rule is selected.", remedy="Leave select out for those that run by default.")
    known = [*(rule.code for rule in all_rules()), *RETIRED]
    ignored = [code for _, codes in config.per_file_ignores for code in codes]
    for word in (*(config.select or ()), *config.ignore, *config.extend_select, *ignored):
        if not _SELECTOR.fullmatch(word) or not (word == "ALL" or any(code.startswith(word) for code in known)):
            raise ConfigWrong(
                f"no rule's code is or begins with {word!r}.", remedy="allranks explain --all names all rules."
            )
    return Settings(
        select=config.select,
        ignore=config.ignore,
        extend_select=config.extend_select,
        assume=cast(Assume, config.assume),
        confidence=cast(Confidence, config.confidence),
        precision=config.precision,
        entries=config.entry_points,
        rank_zero_predicates=config.rank_zero_predicates,
        collectives=config.collectives,
        shared_paths=config.shared_paths,
        node_local_paths=config.node_local_paths,
    )


def judge(
    files: Mapping[str, bytes],
    config: Config,
    *,
    failed: Mapping[str, str] | None = None,
    shown: Collection[str] | None = None,
    whole: bool = True,
    cache: Cache | None = None,
    ahead: Ahead = lambda _, cache: nullcontext(cache),
) -> Judged:
    """Check files by path from the root; ``failed`` could not be read, and why.

    Findings are those of the files ``shown``, all without: the others are there to be followed into. ``whole``: these
    are all files of the project, so that what is not found is not there. ``ahead`` may fill the cache meanwhile
    (`crew.read_ahead`).
    """
    settings = settings_of(config)
    codes = settings.codes()
    broken = dict(failed or {})
    shown = files.keys() if shown is None else shown
    sources: dict[str, bytes] = {}
    for path, raw in files.items():
        code = python_of(path, raw)
        if isinstance(code, str):
            broken[path] = code
        elif "::" in path and not is_text(path):
            broken[path] = "its name contains ::, as the names of functions do here, and no module can be called so"
        else:
            sources[path] = code
    programs = {path: raw for path, raw in sources.items() if not is_text(path)}
    accepted = Accepted({path: sources[path] for path in sources if path in shown}, config.per_file_ignores)
    with ahead(programs, Memory() if cache is None else cache) as filled:
        outcome = check(sources, settings, cache=filled, suppressed=accepted.among)
    found = [finding for finding in outcome.findings if finding.place.path in shown]
    decided = codes if whole and not settings.entries else codes - _of_programs()
    found += (
        [_unreadable(path, why) for path, why in broken.items() if path in shown or path not in files]
        if UnreadableFile.code in codes
        else []
    )
    every = [*found, *(finding for finding in accepted.about_comments(found, decided) if finding.code in codes)]
    hidden, allowed = accepted.by_comments(found), accepted.by_settings(every)
    found = [finding for finding in every if finding not in hidden and finding not in allowed]
    counts = {
        "unsure": sum(map(settings.unsure, found)),
        "withheld": sum(not settings.confident(finding) for finding in found),
        "allowed": sum(map(settings.shows, allowed - hidden)),
        "suppressed": sum(map(settings.shows, hidden)),
    }
    found = [_mendable(finding) for finding in found if settings.shows(finding)]
    found.sort(key=lambda finding: (finding.place, finding.code))
    notes = _notes({finding.code for finding in found})
    files_read = outcome.files + len(broken)
    return Judged(tuple(found), outcome.rows, files_read, outcome.lines, notes, retired=accepted.retired, **counts)


def _notes(codes: Collection[str]) -> tuple[RuleNote, ...]:
    rules = [rule for rule in all_rules() if rule.code in codes]
    known = {rule.code: measured(rule.code) for rule in rules}
    counts = {code: (one.right, one.read) if one.precision is not None else () for code, one in known.items()}
    return tuple(RuleNote(rule.code, rule.name, summary(rule), *counts[rule.code]) for rule in rules)


def _mendable(finding: Finding) -> Finding:
    """Return a finding without its fix where no fix is made: in notebooks, and in scripts."""
    return finding if finding.place.path.endswith(".py") else replace(finding, fix=None)


def _of_programs() -> frozenset[str]:
    """Return the codes of the rules that ask more than one file: who checks a part of a project may lack the other."""
    return frozenset(
        rule.code
        for rule in all_rules()
        if isinstance(rule, ProgramRule)
        or (isinstance(rule, LocalRule) and type(rule).confirm is not LocalRule.confirm)
    )


def _unreadable(path: str, why: str) -> Finding:
    return UnreadableFile().finding(Place(path, 1, 1, 1, 1), module_name(path), why)
