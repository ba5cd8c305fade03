"""What one file comes to, whatever the others are: its tree, and what the local rules say, kept as bytes. Pure."""

from __future__ import annotations

import ast
import marshal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Protocol

from allranks.check.budget import Exhausted, limited_to, seconds_for, seconds_spent
from allranks.check.kept import findings_of, plain
from allranks.check.registry import all_rules
from allranks.check.registry import rule as rule_of
from allranks.check.rule import LocalRule
from allranks.check.rules.ar903_analysis_incomplete import AnalysisIncomplete
from allranks.check.sources.source import File, Tangled, Unreadable, decode, module_name, parse
from allranks.check.tree.syntax import calls_of
from allranks.findings import Finding, Place, Severity

# Branches of one statement. The longest chain in 392 projects of others has 65.
MOST_BRANCHES = 300
# What each rule may take of the processor in a file at which the others took all that the file may.
LEAST_OF_RULE_S = 0.5


class Cache(Protocol):
    """Bytes by key; whatever it loses is computed again."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes) -> None: ...


class Memory(dict[bytes, bytes]):
    """What is known in this run alone."""

    def put(self, key: bytes, value: bytes) -> None:
        """Take what is known under a key."""
        self[key] = value


@dataclass(frozen=True, slots=True)
class Parsed:
    """A file that was parsed; of one that cannot be read there is no ``file``, but ``why``."""

    path: str
    raw: bytes
    file: File | None = None
    why: Unreadable | None = None

    def kept(self) -> tuple[bytes, bytes]:
        """Return what the local rules find, for a cache: its key and its bytes."""
        return key_of(self.path, self.raw), marshal.dumps(plain(self.findings()))

    def findings(self) -> list[Finding]:
        """Return what the local rules find, or why the file cannot be read."""
        if self.file is None:
            return [_unreadable(self.path, self.why)] if self.why is not None else []
        return _local(self.file)


def key_of(path: str, raw: bytes) -> bytes:
    """Return the key under which the local findings of a file are kept."""
    name = blake2b(path.encode(errors="surrogatepass"), digest_size=32).digest()
    return blake2b(raw, digest_size=16, key=name).digest()


def missing(sources: Mapping[str, bytes], cache: Cache) -> list[tuple[str, bytes]]:
    """Return the files of which the cache does not know the findings."""
    return [(path, raw) for path, raw in sources.items() if cache.get(key_of(path, raw)) is None]


def findings_in(read: Parsed, cache: Cache) -> list[Finding]:
    """Return what the local rules find in a file; what is new is put into the cache."""
    key = key_of(read.path, read.raw)
    if (kept := cache.get(key)) is None:
        _, kept = read.kept()
        cache.put(key, kept)
    return findings_of(marshal.loads(kept))


def parsed(path: str, raw: bytes) -> Parsed:
    """Return a file parsed."""
    text = decode(raw)
    if isinstance(text, Unreadable):
        return Parsed(path, raw, why=text)
    tree = parse(text)
    if isinstance(tree, Unreadable):
        return Parsed(path, raw, why=tree)
    file = File(path, text, tree)
    try:
        branches = most_branches(file)
    except RecursionError:
        return Parsed(path, raw, why=Unreadable("nested too deeply to be checked", limit=True))
    if branches > MOST_BRANCHES:
        why = f"one statement has {branches:,} branches (elif or case), more than the {MOST_BRANCHES} that are followed"
        return Parsed(path, raw, why=Unreadable(why, limit=True))
    return Parsed(path, raw, file)


def most_branches(file: File) -> int:
    """Return how many branches the longest chain of ``elif``, or of ``case``, has: each is followed into all after it,
    so that the work grows with the square."""
    cases = [len(match.cases) for match in file.kinds.get(ast.Match, ()) if isinstance(match, ast.Match)]
    depth: dict[ast.AST, int] = {}
    for test in reversed(file.kinds.get(ast.If, [])):  # level by level: what is below comes first now
        below = test.orelse if isinstance(test, ast.If) else []
        depth[test] = 1 + (depth.get(below[0], 0) if len(below) == 1 else 0)
    return max([0, *cases, *depth.values()])


def _unreadable(path: str, why: Unreadable) -> Finding:
    meta = rule_of("AR900")
    if meta is None:
        raise RuntimeError("rule AR900 is missing from the package of rules")
    place = Place(path, why.line, why.column, why.line, why.column + 1)
    if why.limit:
        return AnalysisIncomplete().not_read(place, why.reason)
    advice = "Run allranks with the Python that runs the program; nothing here is checked." if why.newer else None
    severity: Severity | None = "info" if why.newer else None
    return meta.finding(place, module_name(path), why.reason, severity=severity, advice=advice)


def _local(file: File) -> list[Finding]:
    """Ask the local rules that the file's text calls for about the nodes that are theirs."""
    known: dict[str, bool] = {}

    def speaks(rule: LocalRule) -> bool:
        for word in rule.words:
            if word not in known:
                known[word] = word in file.text
            if known[word]:
                return True
        return False

    found: list[Finding] = []
    start = seconds_spent()
    for rule in _local_rules():
        if speaks(rule):
            left = seconds_for(len(file.lines)) - (seconds_spent() - start)
            found += _findings(rule, file, max(left, LEAST_OF_RULE_S))
    return found


def _findings(rule: LocalRule, file: File, seconds: float) -> list[Finding]:
    """Return what a rule finds in a file; where it fails or gives up, that is told, and the others go on."""
    found: list[Finding] = []
    file.steps.taken = 0
    try:
        with limited_to(seconds):
            for node in _asked_about(rule, file) if rule.applies(file) else ():
                found += rule.visit(node, file)
    except RecursionError:
        why = Tangled("its expressions, or functions that call each other, lead too deeply into each other")
        found.append(AnalysisIncomplete().given_up(Place(file.path, 1, 1, 1, 1), rule.code, why))
    except (Tangled, Exhausted) as why:
        found.append(AnalysisIncomplete().given_up(Place(file.path, 1, 1, 1, 1), rule.code, why))
    except Exception as error:  # a fault of ours must not hide what else is wrong
        found.append(AnalysisIncomplete().failed(Place(file.path, 1, 1, 1, 1), rule.code, error))
    return found


def _asked_about(rule: LocalRule, file: File) -> list[ast.AST]:
    if not rule.calls:
        return [node for kind in rule.nodes for node in file.kinds.get(kind, ())]
    calls = calls_of(file)
    named = [call for word in _last_parts(rule) for call in calls.get(word, ())]
    others = [node for kind in rule.nodes if kind is not ast.Call for node in file.kinds.get(kind, ())]
    return list(dict.fromkeys([*named, *others]))


@cache
def _local_rules() -> tuple[LocalRule, ...]:
    return tuple(rule for rule in all_rules() if isinstance(rule, LocalRule))


@cache
def _last_parts(rule: LocalRule) -> tuple[str, ...]:
    return tuple(sorted({name.rpartition(".")[2] for name in rule.calls}))
