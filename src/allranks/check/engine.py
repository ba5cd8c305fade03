"""Sources in, findings out. Pure: whoever calls it reads the files and keeps the cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from allranks.check.budget import Exhausted, limited_to, seconds_for
from allranks.check.measured import measured
from allranks.check.program import Program
from allranks.check.reading import Cache, Memory, findings_in, summary_of
from allranks.check.registry import all_rules, selected
from allranks.check.results.rows import rows
from allranks.check.rule import ABOUT_ITSELF, Assume, LocalRule, ProgramRule
from allranks.check.rules.ar604_unknown_env_var import UnknownEnvVar
from allranks.check.rules.ar903_analysis_incomplete import AnalysisIncomplete
from allranks.check.sources.scripts import is_page, is_text
from allranks.check.sources.source import Unreadable, decode, split
from allranks.check.summaries.project import Project
from allranks.check.summaries.summary import Summary
from allranks.check.survey.first_alone import first_alone, on_import, starts_by_trainer
from allranks.check.survey.launches import Launches, by_launchers
from allranks.check.survey.survey import Survey
from allranks.check.tables.apis import apis
from allranks.findings import Confidence, Finding, Place, Row

MOST_LEFT_OUT = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user says about the project. Names are qualified (``utils.is_chief``); entries and paths are globs."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    assume: Assume = "auto"
    entries: tuple[str, ...] = ()
    rank_zero_predicates: tuple[str, ...] = ()
    collectives: tuple[str, ...] = ()
    confidence: Confidence = "high"
    precision: float = 0.0
    shared_paths: tuple[str, ...] = ()
    node_local_paths: tuple[str, ...] = ()

    def shows(self, finding: Finding) -> bool:
        """Return whether a finding is sure enough to be shown."""
        return self.confident(finding) and not self.unsure(finding)

    def confident(self, finding: Finding) -> bool:
        """Return whether a finding has the confidence that is asked for."""
        return self.confidence == "low" or finding.confidence == "high"

    def unsure(self, finding: Finding) -> bool:
        """Return whether a finding is not shown for its rule was right less often than is asked for: nothing that
        ``extend_select`` names, nor what the check says of itself."""
        code = finding.code
        if not self.precision or code.startswith(ABOUT_ITSELF) or selected((code,), self.extend_select, ()):
            return False
        return self.confident(finding) and (measured(code).precision or 0.0) < self.precision

    def codes(self) -> frozenset[str]:
        """Return the codes of the rules that run: those selected, or all that run by default."""
        rules = all_rules()
        known = tuple(r.code for r in rules)
        if self.select is not None:
            return selected(known, (*self.select, *self.extend_select), self.ignore)
        usual = {r.code for r in rules if r.default}
        return selected(known, ("ALL",), self.ignore) & usual | selected(known, self.extend_select, self.ignore)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found, by place and code, whatever its confidence; suppressions are not applied yet. ``files`` and
    ``lines`` were looked at."""

    findings: tuple[Finding, ...]
    rows: tuple[Row, ...]
    files: int
    lines: int


def check(sources: Mapping[str, bytes], settings: Settings, *, cache: Cache | None = None) -> Outcome:
    """Check the Python files and scripts ``sources`` (path from the project's root -> bytes)."""
    codes = settings.codes()
    cache = Memory() if cache is None else cache
    program, left_out = _followed(sources, summaries_of(sources, cache), settings)
    findings = [found for path in _python(sources) for found in findings_in(path, sources[path], cache)]
    if UnknownEnvVar.code in codes:
        findings.extend(UnknownEnvVar().in_scripts(sources))
    asked = {r.code: r for r in all_rules() if isinstance(r, LocalRule) and (r.whole or settings.assume == "auto")}
    findings = [
        f
        for f in findings
        if f.code not in asked or (f.place.path not in left_out and asked[f.code].stands(f, program))
    ]
    findings.extend(left_out.values())
    chosen = [r for r in all_rules() if isinstance(r, ProgramRule) and r.code in codes]
    first, seconds = min(sources, default=""), seconds_for(_lines(sources.values()))
    findings.extend(finding for r in chosen for finding in _findings(r, program, first, seconds))
    if settings.assume == "auto":
        findings = _by_launches(_by_nodes(findings, program), program)
    surest_last = sorted(findings, key=lambda finding: finding.confidence == "high")
    once = {(f.place, f.code): f for f in surest_last if f.code in codes}
    instead_of = {r.code: r.instead_of for r in all_rules()}
    doubled = {(f.place, code) for f in once.values() for code in instead_of[f.code]}
    found = [once[key] for key in sorted(once.keys() - doubled)]
    shown = [f for f in found if settings.shows(f)]
    unsure = [f for f in found if settings.unsure(f)]
    topics = {r.code: r.row for r in all_rules()}
    report = rows(program, shown, topics, program.facts.lines, doubted=found, unsure=unsure)
    counted = [raw for path, raw in sources.items() if not is_page(path)]
    return Outcome(tuple(found), report, len(counted), _lines(counted))


def _lines(texts: Iterable[bytes]) -> int:
    return sum(raw.count(b"\n") for raw in texts)


def _followed(
    sources: Mapping[str, bytes], summaries: Mapping[str, Summary], settings: Settings
) -> tuple[Program, dict[str, Finding]]:
    """Return what interpreting finds out, and a finding for each file without which alone it ends in time.

    The longest is left out first; after `MOST_LEFT_OUT` of them, all are.
    """
    rest, left_out = dict(summaries), dict[str, Finding]()
    while rest:
        try:
            with limited_to(seconds_for(_lines(sources[path] for path in rest))):
                return interpreted(sources, rest, settings), left_out
        except Exhausted as why:
            longest = sorted(rest, key=lambda path: len(sources[path]), reverse=True)
            for path in longest[: 1 if len(left_out) < MOST_LEFT_OUT else None]:
                del rest[path]
                left_out[path] = AnalysisIncomplete().left_out(Place(path, 1, 1, 1, 1), why)
    return interpreted(sources, rest, settings), left_out


def _findings(rule: ProgramRule, program: Program, first: str, seconds: float) -> list[Finding]:
    """Return what a rule finds in a program; where it fails or takes more than ``seconds``, that is told at the
    ``first`` file, and others go on."""
    try:
        with limited_to(seconds):
            return list(rule.check(program))
    except Exhausted as why:
        return [AnalysisIncomplete().given_up(Place(first, 1, 1, 1, 1), rule.code, why, "the program")]
    except Exception as error:  # a fault of ours must not hide what else is wrong
        return [AnalysisIncomplete().failed(Place(first, 1, 1, 1, 1), rule.code, error)]


def summaries_of(sources: Mapping[str, bytes], cache: Cache) -> dict[str, Summary]:
    """Return the summaries of the Python files of ``sources`` that can be read."""
    made = ((path, summary_of(path, sources[path], cache)) for path in _python(sources))
    return {path: summary for path, summary in made if summary is not None}


def _python(sources: Mapping[str, bytes]) -> list[str]:
    return sorted(path for path in sources if not is_text(path))


def _by_nodes(findings: list[Finding], program: Program) -> list[Finding]:
    """Lower the confidence of what goes wrong on several nodes alone, where nothing speaks of several, and in a program
    that is started on one, as all say who start it."""
    of_nodes = {r.code for r in all_rules() if r.of_nodes}
    if not any(f.code in of_nodes for f in findings):
        return findings
    nowhere = program.one_node or not program.facts.several_nodes
    told = frozenset[str]() if nowhere or program.assumed else program.facts.one_node
    return [
        replace(f, confidence="low") if f.code in of_nodes and (nowhere or not told.isdisjoint(_paths(f))) else f
        for f in findings
    ]


def _paths(finding: Finding) -> set[str]:
    return {finding.place.path, *(note.place.path for note in finding.notes if note.place is not None)}


def _by_launches(findings: list[Finding], program: Program) -> list[Finding]:
    """Lower the confidence of a collective that not all reach in a program that scripts always start as one process."""
    waits = {r.code for r in all_rules() if r.row == "collectives"}
    return [
        replace(f, confidence="low") if f.code in waits and program.facts.starts_alone(f.place.path) else f
        for f in findings
    ]


def interpreted(sources: Mapping[str, bytes], summaries: Mapping[str, Summary], settings: Settings) -> Program:
    """Return what interpreting ``sources`` finds out; ``summaries``: of those Python files that can be read."""
    tables = apis(
        predicates=settings.rank_zero_predicates,
        collectives=settings.collectives,
        shared=settings.shared_paths,
        node_local=settings.node_local_paths,
    )
    everywhere = settings.assume == "multi-host"
    project = Project(summaries)
    lines = Lines(sources)
    launches = Launches(sources)
    survey = Survey(
        project,
        tables,
        lines,
        everywhere=everywhere,
        entries=settings.entries,
        launches=launches,
    )
    program = replace(survey.program(sources), assumed=everywhere)
    first = not everywhere and starts_by_trainer(program.packages, program.events) and not by_launchers(sources)
    by_node = not everywhere and any(event.first_of_each_node for event in program.effects("mkdir"))
    one_node = (first or by_node) and not program.facts.several_nodes
    early = first_alone(program.events, survey.interpreter.lineage) if first and one_node else frozenset()
    again = frozenset() if everywhere else on_import(program.events, survey.interpreter.spawned, project, launches)
    return replace(program, started_at_fit=first, one_node=one_node, first_alone=early | again)


class Lines(Mapping[str, list[str]]):
    """The lines of files, decoded when they are asked for."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._sources = sources
        self._known: dict[str, list[str]] = {}

    def __getitem__(self, path: str) -> list[str]:
        if path not in self._known:
            text = decode(self._sources[path])
            self._known[path] = [] if isinstance(text, Unreadable) else split(text)
        return self._known[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)
