"""What one file comes to, whatever the others are: its summary, and what the local rules say. Kept as bytes. Pure."""

from __future__ import annotations

import ast
import marshal
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from typing import Protocol

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


class Cache(Protocol):
    """Bytes by key; whatever it loses is computed again."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes) -> None: ...


def key_of(path: str, raw: bytes) -> bytes:
    """Return the key of what `digested` makes of a file."""
    name = blake2b(path.encode(errors="surrogatepass"), digest_size=32).digest()
    return blake2b(raw, digest_size=16, key=name).digest()


def missing(sources: Mapping[str, bytes], cache: Cache) -> list[tuple[str, bytes]]:
    """Return the files that the cache does not know."""
    return [(path, raw) for path, raw in sources.items() if cache.get(key_of(path, raw)) is None]


def digested(path: str, raw: bytes) -> bytes:
    """Return a file's summary, if it has one, and the findings of the local rules."""
    return _packed(*_examined(path, raw))


def examined(path: str, raw: bytes, cache: Cache | None = None) -> tuple[Summary | None, list[Finding]]:
    """Return a file's summary (None for one that is no Python) and the findings of the local rules."""
    if cache is None:
        return _examined(path, raw)
    key = key_of(path, raw)
    kept = cache.get(key)
    if kept is None:
        summary, findings = _examined(path, raw)
        cache.put(key, _packed(summary, findings))
        return summary, findings
    packed, lists = marshal.loads(kept)
    return None if packed is None else load(packed), findings_of(lists)


def _packed(summary: Summary | None, findings: list[Finding]) -> bytes:
    return marshal.dumps((None if summary is None else dump(summary), plain(findings)))


def _examined(path: str, raw: bytes) -> tuple[Summary | None, list[Finding]]:
    text = decode(raw)
    if isinstance(text, Unreadable):
        return None, [_unreadable(path, text)]
    tree = parse(text)
    if isinstance(tree, Unreadable):
        return None, [_unreadable(path, tree)]
    try:
        return lower(tree), _local(File(path, text, tree))
    except RecursionError:
        return None, [_unreadable(path, Unreadable("nested too deeply to be checked"))]


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
    for rule in _local_rules():
        if speaks(rule):
            found += _findings(rule, file)
    return found


def _findings(rule: LocalRule, file: File) -> list[Finding]:
    """Return what a rule finds in a file; where it fails or gives up, that is told, and the others go on."""
    found: list[Finding] = []
    file.steps.taken = 0
    try:
        for node in _asked_about(rule, file) if rule.applies(file) else ():
            found += rule.visit(node, file)
    except RecursionError:
        raise
    except Tangled as why:
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
