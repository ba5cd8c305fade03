"""Parse a manifest as one JSON object, and check its digest, format and version. Its content is checked elsewhere."""

from __future__ import annotations

import json
import re
import reprlib
from collections import Counter
from collections.abc import Set
from typing import Any, cast

from allranks.checkpoint.integrity import InvalidManifest
from allranks.digest import NAMES, hasher_by_name

FORMAT = "allranks.checkpoint"
# The format versions: the plain one; one with tied arrays, arrays of each rank or torch's own dtypes; one with values
# of each rank; and one with compressed files. (No version 2 was ever written.)
PLAIN, EXTENDED, BY_RANK, COMPRESSED = 1, 3, 4, 5

_HEAD = re.compile(rb'\{"digest":"([0-9a-f]+)",\n')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_KEYS = {
    *("digest", "format", "version", "step", "nonce", "created", "world", "integrity"),
    *("files", "leaves", "values", "extra", "metrics", "versions"),
}
_KEYS_OF = {PLAIN: _KEYS, EXTENDED: _KEYS | {"ties"}} | dict.fromkeys(
    (BY_RANK, COMPRESSED), _KEYS | {"ties", "rank_values"}
)
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlist = _SHORT.maxdict = 20
_KNOWN = f"{', '.join(map(str, (PLAIN, EXTENDED, BY_RANK)))} and {COMPRESSED}"


class NewerManifest(InvalidManifest):
    """The manifest was written by a newer allranks, and this version cannot read it."""


def is_allranks_manifest(data: bytes) -> bool:
    """Return whether the bytes are a manifest of allranks, of any version, valid or damaged."""
    return _HEAD.match(data) is not None or f'"{FORMAT}"'.encode() in data


def parse_document(data: bytes) -> dict[str, Any]:
    """Return the JSON object in a manifest's bytes. Raises InvalidManifest; NewerManifest for a newer format version.

    A digest of known length must match. A digest of unknown length may be a newer version's, and is not checked.
    """
    head = _HEAD.match(data)
    if head is None:
        raise InvalidManifest('its first line is not {"digest":"<hexadecimal digits>",')
    written = head[1].decode()
    named = [name for name in NAMES if hasher_by_name(name).digits == len(written)]
    if not named:
        _check_version(_parse_json(data))
        raise InvalidManifest(f"its digest has {len(written)} digits: no known digest has so many")
    found = hasher_by_name(named[0])(memoryview(data)[head.end() :])
    if found != written:
        raise InvalidManifest(f"the {named[0]} digest of its content is {found}: expected {written}")
    document = _parse_json(data)
    if document.get("format") != FORMAT:
        raise InvalidManifest(f"its format is {shorten(document.get('format'))}: expected {FORMAT!r}")
    _check_version(document)
    version = document.get("version")
    if type(version) is not int or version not in _KEYS_OF:
        raise InvalidManifest(f"its version is {shorten(version)}: expected one of {_KNOWN}")
    check_keys(document, _KEYS_OF[version], "the manifest")
    if document["integrity"] != named[0]:
        raise InvalidManifest(
            f"its 'integrity' is {shorten(document['integrity'])}: expected {named[0]!r}, its own digest"
        )
    return document


def _parse_json(data: bytes) -> dict[str, Any]:
    """Return the JSON object in the bytes, without a check of its content."""
    try:
        text = data.decode()
        document = json.loads(text, object_pairs_hook=_object_with_unique_keys, parse_constant=_no_constant)
    except RecursionError:
        raise InvalidManifest("it is nested too deeply") from None
    except InvalidManifest:
        raise
    except ValueError as error:
        raise InvalidManifest(f"it is not JSON ({error})") from None
    _check_text(text, document)
    return cast(dict[str, Any], document)


def _check_version(document: dict[str, Any]) -> None:
    version = document.get("version")
    if document.get("format") == FORMAT and type(version) is int and version > PLAIN and version not in _KEYS_OF:
        raise NewerManifest(
            f"has version {version} of the format, which this allranks cannot read: expected one of {_KNOWN}"
        )


def _check_text(text: str, document: Any) -> None:
    """Raise InvalidManifest if the JSON text has a lone surrogate (``\\ud800``), which no Unicode text contains."""
    if _SURROGATE.search(text):
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidManifest("it contains half of a surrogate pair") from None


def _object_with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise InvalidManifest(f"the key {shorten(twice)} occurs twice in one object")
    return made


def _no_constant(name: str) -> Any:
    raise InvalidManifest(f"{name} is not JSON")


def shorten(value: Any) -> str:
    """Return at most 80 characters that show a value. A large value is not formatted as a whole."""
    text = _SHORT.repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def check_keys(value: Any, keys: Set[str], object_name: str) -> None:
    if type(value) is not dict:
        raise InvalidManifest(f"{object_name} is {shorten(value)}: expected an object")
    if value.keys() != keys:
        raise InvalidManifest(f"{object_name} has the keys {shorten(sorted(value))}: expected {sorted(keys)}")
