"""What one file comes to, whatever the others are: its summary, and what the local rules say. Kept as bytes. Pure.

The two are kept apart: the program is interpreted by summaries, and nobody need wait for the local rules until then.
"""

from __future__ import annotations

import ast
import marshal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import NamedTuple, Protocol

from allranks.check.budget import Exhausted, limited_to, seconds_for, seconds_spent
from allranks.check.kept import findings_of, plain
from allranks.check.registry import all_rules
from allranks.check.registry import rule as rule_of
from allranks.check.rule import LocalRule
from allranks.check.rules.ar903_analysis_incomplete import AnalysisIncomplete
from allranks.check.sources.source import File, Tangled, Unreadable, decode, module_name, parse
from allranks.check.summaries.lower import lower
from allranks.check.summaries.summary import Summary, dump, load
from allranks.check.tree.syntax import calls_of
from allranks.findings import Finding, Place

# Branches of one statement. The longest chain in 392 projects of others has 65.
MOST_BRANCHES = 300
# What each rule may take of the processor in a file at which the others took all that the file may.
LEAST_OF_RULE_S = 0.5


class Keys(NamedTuple):
    """Under which the parts of what is known of a file are kept."""

    summary: bytes
    findings: bytes


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
    """A file of which a summary was made; of one that cannot be read there is no summary, but ``why``."""

    path: str
    raw: bytes
    summary: Summary | None
    file: File | None = None
    why: Unreadable | None = None
    packed: bytes = b""

    def kept_summary(self) -> tuple[bytes, bytes]:
        """Return the summary for a cache: its key and its bytes."""
        return keys_of(self.path, self.raw).summary, self.packed

    def kept_findings(self) -> tuple[bytes, bytes]:
        """Return what the local rules find, for a cache: its key and its bytes."""
        return keys_of(self.path, self.raw).findings, marshal.dumps(plain(self.findings()))

    def findings(self) -> list[Finding]:
        """Return what the local rules find, or why the file cannot be read."""
        if self.file is None:
            return [_unreadable(self.path, self.why)] if self.why is not None else []
        return _local(self.file)


def keys_of(path: str, raw: bytes) -> Keys:
    """Return the keys of what is known of a file."""
    name = blake2b(path.encode(errors="surrogatepass"), digest_size=32).digest()
    digest = blake2b(raw, digest_size=16, key=name).digest()
    return Keys(digest + b"s", digest + b"f")


def missing(sources: Mapping[str, bytes], cache: Cache) -> list[tuple[str, bytes]]:
    """Return the files of which the cache does not know both parts."""
    return [(path, raw) for path, raw in sources.items() if any(cache.get(k) is None for k in keys_of(path, raw))]


def summary_of(path: str, raw: bytes, cache: Cache) -> Summary | None:
    """Return a file's summary, None for one that is no Python; what is new is put into the cache, findings too."""
    kept = cache.get(keys_of(path, raw).summary)
    if kept is not None:
        return load(kept) if kept else None
    new = parsed(path, raw)
    cache.put(*new.kept_summary())
    cache.put(*new.kept_findings())
    return new.summary


def findings_in(path: str, raw: bytes, cache: Cache) -> list[Finding]:
    """Return what the local rules find in a file; what is new is put into the cache."""
    key = keys_of(path, raw).findings
    if (kept := cache.get(key)) is None:
        _, kept = parsed(path, raw).kept_findings()
        cache.put(key, kept)
    return findings_of(marshal.loads(kept))


def parsed(path: str, raw: bytes) -> Parsed:
    """Return a file parsed, with its summary."""
    text = decode(raw)
    if isinstance(text, Unreadable):
        return Parsed(path, raw, None, why=text)
    tree = parse(text)
    if isinstance(tree, Unreadable):
        return Parsed(path, raw, None, why=tree)
    file = File(path, text, tree)
    if (branches := most_branches(file)) > MOST_BRANCHES:
        why = f"one statement has {branches:,} branches (elif or case), more than the {MOST_BRANCHES} that are followed"
        return Parsed(path, raw, None, why=Unreadable(why))
    try:
        with limited_to(seconds_for(len(file.lines))):
            summary = lower(tree)
        return Parsed(path, raw, summary, file, packed=dump(summary))
    except Exhausted as error:
        return Parsed(path, raw, None, why=Unreadable(f"cannot be checked: {error}"))
    except (RecursionError, ValueError):  # ValueError: of marshal
        return Parsed(path, raw, None, why=Unreadable("nested too deeply to be checked"))


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
    return meta.finding(place, module_name(path), why.reason)


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
