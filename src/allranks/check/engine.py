"""Sources in, findings out. Pure: whoever calls it reads the files and keeps the cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from allranks.check.analysis import analyse
from allranks.check.budget import Exhausted, limited_to, seconds_for
from allranks.check.knowledge.tables import declare
from allranks.check.measured import measured
from allranks.check.program import Program
from allranks.check.reading import Cache, Memory, findings_in, parsed
from allranks.check.registry import all_rules, selected
from allranks.check.results.rows import EVIDENCE, rows
from allranks.check.roots import Starts
from allranks.check.rule import ABOUT_ITSELF, Assume, LocalRule, ProgramRule
from allranks.check.rules.ar604_unknown_env_var import UnknownEnvVar
from allranks.check.rules.ar900_unreadable_file import UnreadableFile
from allranks.check.rules.ar903_analysis_incomplete import AnalysisIncomplete
from allranks.check.sources.facts import Facts
from allranks.check.sources.globs import matches
from allranks.check.sources.scripts import is_page, is_text
from allranks.check.sources.source import File, Unreadable, decode, split
from allranks.findings import ROWS, Confidence, Finding, Note, Place, Row

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


def check(
    sources: Mapping[str, bytes],
    settings: Settings,
    *,
    cache: Cache | None = None,
    suppressed: Callable[[list[Finding]], Collection[Finding]] = lambda _: (),
) -> Outcome:
    """Check the Python files and scripts ``sources`` (path from the project's root -> bytes). ``suppressed`` returns
    those findings that the project does not want to see: nothing is said for their rows of the report."""
    codes = settings.codes()
    cache = Memory() if cache is None else cache
    read = {path: parsed(path, raw) for path, raw in sorted(sources.items()) if not is_text(path)}
    files = {path: one.file for path, one in read.items() if one.file is not None}
    program, left_out = _followed(sources, files, settings)
    findings = [found for one in read.values() for found in findings_in(one, cache)]
    findings = [*_together(f for f in findings if _is_newer(f)), *(f for f in findings if not _is_newer(f))]
    if UnknownEnvVar.code in codes:
        findings.extend(UnknownEnvVar().in_scripts(sources))
    asked = {r.code: r for r in all_rules() if isinstance(r, LocalRule) and (r.whole or settings.assume == "auto")}
    findings = [
        f
        for f in findings
        if f.code not in asked or (f.place.path not in left_out and asked[f.code].confirm(f, program))
    ]
    if settings.assume == "auto":
        findings = _by_programs(findings, program)
    findings.extend(left_out.values())
    chosen = [r for r in all_rules() if isinstance(r, ProgramRule) and r.code in codes]
    first, seconds = min(sources, default=""), seconds_for(_lines(sources.values()))
    findings.extend(finding for r in chosen for finding in _findings(r, program, first, seconds))
    if settings.assume == "auto":
        findings = _by_nodes(findings, program)
    surest_last = sorted(findings, key=lambda finding: finding.confidence == "high")
    once = {(f.place, f.code): f for f in surest_last if f.code in codes}
    instead_of = {r.code: r.instead_of for r in all_rules()}
    doubled = {(f.place, code) for f in once.values() for code in instead_of[f.code]}
    found = [once[key] for key in sorted(once.keys() - doubled)]
    hidden = frozenset(suppressed(found))
    shown = [f for f in found if settings.shows(f) and f not in hidden]
    report = rows(program, shown, _topics(), doubted=found, unknown=_unknown(found, hidden, settings))
    counted = [raw for path, raw in sources.items() if not is_page(path)]
    return Outcome(tuple(found), report, len(counted), _lines(counted))


def _topics() -> dict[str, str]:
    return {rule.code: rule.row for rule in all_rules()}


def _unknown(
    findings: Iterable[Finding], hidden: Collection[Finding], settings: Settings
) -> Iterator[tuple[str, Note]]:
    """Yield the rows of the report that cannot be known, and why: what is suppressed, not precise enough, or not
    looked for."""
    topics, codes = _topics(), settings.codes()
    for finding in findings:
        if settings.shows(finding) and finding in hidden:
            yield topics[finding.code], Note(f"{finding.code} is suppressed here", finding.place)
        elif settings.unsure(finding):
            why = f"{finding.code} is less precise than --precision requires, and not shown"
            yield topics[finding.code], Note(why, finding.place)
    for topic in ROWS:
        idle = [r.code for r in all_rules() if r.row == topic and r.default and r.code not in codes]
        if idle:
            yield topic, Note(f"{', '.join(idle)} {'does' if len(idle) == 1 else 'do'} not run, as selected")


def _is_newer(finding: Finding) -> bool:
    return finding.code == UnreadableFile.code and finding.severity == "info"


def _together(findings: Iterable[Finding]) -> list[Finding]:
    """Return the remarks about files that need a newer Python as one, with the other files as notes."""
    every = list(findings)
    if not every:
        return []
    first, *others = every
    notes = [Note("so does this file", other.place) for other in others]
    more = f"; so do {len(others)} more" if others else ""
    return [replace(first, message=f"{first.message}{more}", notes=tuple(notes))]


def program_of(sources: Mapping[str, bytes], settings: Settings) -> Program:
    """Return what running the Python files of ``sources`` shows, for whoever wants to see more than the findings."""
    read = [parsed(path, raw) for path, raw in sorted(sources.items()) if not is_text(path)]
    return _followed(sources, {one.path: one.file for one in read if one.file is not None}, settings)[0]


def _lines(texts: Iterable[bytes]) -> int:
    return sum(raw.count(b"\n") for raw in texts)


def _followed(
    sources: Mapping[str, bytes], files: Mapping[str, File], settings: Settings
) -> tuple[Program, dict[str, Finding]]:
    """Return what running the program shows, and a finding for each file without which alone it ends in time.

    The longest is left out first; after `MOST_LEFT_OUT` of them, all are.
    """
    facts = Facts(sources, Lines(sources, files), files)
    rest, left_out = dict(files), dict[str, Finding]()
    while rest:
        try:
            with limited_to(seconds_for(_lines(sources[path] for path in rest))):
                return _run(rest, facts, settings), left_out
        except Exhausted as why:
            longest = sorted(rest, key=lambda path: len(sources[path]), reverse=True)
            for path in longest[: 1 if len(left_out) < MOST_LEFT_OUT else None]:
                del rest[path]
                left_out[path] = AnalysisIncomplete().left_out(Place(path, 1, 1, 1, 1), why)
    return _run(rest, facts, settings), left_out


def _run(files: Mapping[str, File], facts: Facts, settings: Settings) -> Program:
    """Return what running these files shows."""
    everywhere = settings.assume == "multi-host"
    knowledge = declare(
        settings.rank_zero_predicates, settings.collectives, settings.shared_paths, settings.node_local_paths
    )
    trees = {path: file.tree for path, file in files.items()}
    texts = {path: file.text for path, file in files.items()}
    starts = Starts(
        facts.launches.together,
        facts.launches.alone,
        nodes=facts.several_nodes,
        everywhere=everywhere,
        entries=[path for path in files if settings.entries and matches(settings.entries, path)],
    )
    analysis = analyse(trees, texts, starts=starts, watched=EVIDENCE, knowledge=knowledge)
    return Program(analysis, facts, assumed=everywhere)


def _findings(rule: ProgramRule, program: Program, first: str, seconds: float) -> list[Finding]:
    """Return what a rule finds in a program; where it fails or takes more than ``seconds``, the ``first`` file is said
    to be incomplete, and others go on."""
    try:
        with limited_to(seconds):
            return list(rule.check(program))
    except Exhausted as why:
        return [AnalysisIncomplete().given_up(Place(first, 1, 1, 1, 1), rule.code, why, "the program")]
    except Exception as error:  # a fault of ours must not hide what else is wrong
        return [AnalysisIncomplete().failed(Place(first, 1, 1, 1, 1), rule.code, error)]


def _by_programs(findings: list[Finding], program: Program) -> list[Finding]:
    """Lower the confidence of what is in files that nothing uses which may run as several processes, where there are
    programs that do."""
    roots = program.analysis.roots
    if not any(root.sure and root.kind == "program" for root in roots):
        return findings
    used = program.facts.used_by(root.result.path for root in roots if root.active and root.kind != "function")
    return [f if f.place.path in used or not _is_program(f) else replace(f, confidence="low") for f in findings]


def _is_program(finding: Finding) -> bool:
    return finding.place.path.endswith(".py") and not finding.code.startswith(ABOUT_ITSELF)


def _by_nodes(findings: list[Finding], program: Program) -> list[Finding]:
    """Lower the confidence of what goes wrong on several nodes alone, where nothing speaks of several, and in a program
    that is started on one, as all say who start it."""
    of_nodes = {r.code for r in all_rules() if r.of_nodes}
    if not any(f.code in of_nodes for f in findings):
        return findings
    nowhere = not program.facts.several_nodes
    on_one = frozenset[str]() if nowhere else program.facts.one_node
    return [
        replace(f, confidence="low") if f.code in of_nodes and (nowhere or not on_one.isdisjoint(_paths(f))) else f
        for f in findings
    ]


def _paths(finding: Finding) -> set[str]:
    return {finding.place.path, *(note.place.path for note in finding.notes if note.place is not None)}


class Lines(Mapping[str, list[str]]):
    """The lines of Python files and scripts, decoded when they are asked for."""

    def __init__(self, sources: Mapping[str, bytes], files: Mapping[str, File]) -> None:
        self._sources, self._files = sources, files
        self._known: dict[str, list[str]] = {}

    def __getitem__(self, path: str) -> list[str]:
        if path in self._files:
            return self._files[path].lines
        if path not in self._known:
            text = decode(self._sources[path])
            self._known[path] = [] if isinstance(text, Unreadable) else split(text)
        return self._known[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)
