"""Write a manifest as YAML, as people are used to read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

# What every parser of YAML reads as this text; everything else is quoted as in JSON, which YAML contains.
_PLAIN = re.compile(r"[A-Za-z/][\w./-]*")
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def to_yaml(value: object) -> str:
    """Return mappings, lists, texts, numbers and booleans as YAML."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: object) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _entry(f"{_scalar(key)}:", item)
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for item in value:
            first, *rest = _lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _entry(key: str, item: object) -> Iterator[str]:
    if isinstance(item, str) and "\n" in item and not re.search(r"[^\S\n]$|^\s|\n\n$|[^\x20-\x7e\n]", item, re.M):
        yield f"{key} |{'' if item.endswith(chr(10)) else '-'}"
        yield from (f"  {line}" for line in item.rstrip("\n").split("\n"))
    elif isinstance(item, Mapping | list | tuple) and item:
        yield key
        yield from (f"  {line}" for line in _lines(item))
    else:
        yield f"{key} {_scalar(item)}"


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
