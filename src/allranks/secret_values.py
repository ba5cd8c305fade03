"""Mask secrets in what allranks shows: values of variables and options whose name says so, and passwords in addresses.

A name says so by one of its words (``WANDB_API_KEY``, ``--hf-token``, ``db.password``). Words of models do not:
``pad_token``, ``max_tokens``. A secret under another name is not found, but for tokens of well-known services.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

MASK = "***"
_WORDS = frozenset(["token", "secret", "secrets", "password", "passwd", "passphrase", "credential", "credentials"])
_WORDS |= {"apikey", "authorization", "bearer", "creds", "webhook", "webhooks"}
# Alone they are secrets of an option only: a variable `key` may be that of a column.
_OF_OPTIONS = (["key"], ["pass"], ["pwd"])
# With "key".
_OF_KEYS = frozenset(["api", "access", "private", "secret", "auth", "encryption", "account", "job", "store", "signing"])
_OF_KEYS |= {"wandb", "kaggle", "storage", "ssh", "rsa", "gpg", "deploy", "hf", "openai", "anthropic"}
# With "tokens", which are mostly those of texts.
_OF_SECRET_TOKENS = frozenset(["hf", "api", "access", "auth", "refresh", "bearer", "github", "wandb"])
# With "pass", a password but for these.
_OF_PASSES = frozenset(["first", "second", "forward", "backward", "one", "two", "single", "multi", "per", "last"])
_OF_PASSES |= {"num", "max", "by", "low", "high", "band", "all", "full", "n", "com", "sur", "tres", "im", "over"}
# With "token": words of a model's vocabulary.
_OF_TOKENS = frozenset(
    ["pad", "eos", "bos", "unk", "sep", "cls", "mask", "image", "audio", "video", "start", "end", "stop", "special"]
)
_OF_TOKENS |= {"per", "next", "first", "last", "new", "prompt", "decoder", "forced"}
_PARTS = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]+")
_VALUE = r"""('[^']*'|"[^"]*"|[^\s'"]+)"""
_ASSIGNED = re.compile(r"(?<![\w.-])(-{0,2}[A-Za-z_][\w.-]*)(?:['\"]:\s*|['\"]?(?:=|:\s+))")
_A_VALUE = re.compile(_VALUE)
_OPTION = re.compile(rf"(?<!\S)(--?[A-Za-z][\w.-]*)(\s+)(?!-){_VALUE}")
_BEARER = re.compile(r"\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_PASSWORD_IN_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]{0,30}://[^\s/:@]*):[^\s/@]+@", re.IGNORECASE)
_TOKEN_IN_ADDRESS = re.compile(r"\b(https?://)[^\s/:@]{16,}@", re.IGNORECASE)
# Whoever knows the address of a webhook can send to it.
_WEBHOOK = re.compile(
    r"\b(https?://(?:hooks\.[\w.-]{1,99}/|[\w.-]{1,99}\.webhook\.office\.com/|api\.telegram\.org/bot"
    r"|[\w.:-]{1,99}(?:/[\w.-]{1,50}){0,4}/(?:web)?hooks?/))[^\s'\"]+",
    re.IGNORECASE,
)
_SIGNATURE_IN_ADDRESS = re.compile(r"([?&](?:key|sig|signature|X-(?:Amz|Goog)-Signature)=)[^&\s'\"]+", re.IGNORECASE)
_WELL_KNOWN = re.compile(
    r"\b(?:hf_\w{16,}|sk-[\w-]{16,}|gh[opsur]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|AIza[\w-]{20,}|npm_\w{16,}|nvapi-[\w-]{16,}|sk_live_\w{10,}|pypi-AgE[\w-]{8,}"
    r"|AKIA[0-9A-Z]{16}|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})"
)


def is_secret_name(name: str) -> bool:
    """Return whether the value of a variable or option with this name is a secret."""
    words = [word.lower() for word in _PARTS.findall(name)]
    if words == ["auth"] or (words in _OF_OPTIONS and name.startswith("--")):
        return True
    if any(map(_is_secret_word, ["", *words], words)):
        return words[-1] not in ("file", "path", "dir", "folder", "name", "id", "length", "len", "count", "size")
    return False


def _is_secret_word(before: str, word: str) -> bool:
    if word == "token":
        return before not in _OF_TOKENS
    if word == "tokens":
        return before in _OF_SECRET_TOKENS
    if word in ("key", "keys"):
        return before in _OF_KEYS
    if word in ("pass", "pwd"):
        return bool(before) and before not in _OF_PASSES
    return word in _WORDS or word.endswith(("password", "passwd")) or _is_joined(word)


def _is_joined(word: str) -> bool:
    """Return whether a word without a sign between its parts is the name of a secret: ``ghtoken``, ``sshkey``."""
    return any(
        word.endswith(end) and word != end and _is_secret_word(word.removesuffix(end), end)
        for end in ("token", "key", "pass")
    )


def mask_secrets(text: str) -> str:
    """Return a text, e.g. a command line, with ``***`` in place of secrets. Takes a time linear in its length."""
    text = _PASSWORD_IN_ADDRESS.sub(rf"\1:{MASK}@", text)
    text = _TOKEN_IN_ADDRESS.sub(rf"\1{MASK}@", text)
    text = _WEBHOOK.sub(rf"\1{MASK}", text)
    text = _SIGNATURE_IN_ADDRESS.sub(rf"\1{MASK}", text)
    text = _BEARER.sub(rf"\1{MASK}", _WELL_KNOWN.sub(MASK, text))
    return _OPTION.sub(_mask_value, _mask_assigned(text))


def _mask_assigned(text: str) -> str:
    """Mask the values of ``NAME=value`` and ``name: value``, also in another value: ``--env=NAME=value``."""
    parts, at = [], 0
    while match := _ASSIGNED.search(text, at):
        parts.append(text[at : match.end()])
        at = match.end()
        if is_secret_name(match[1]) and (value := _A_VALUE.match(text, at)):
            parts.append(MASK)
            at = value.end()
    return "".join([*parts, text[at:]])


def _mask_value(match: re.Match[str]) -> str:
    return f"{match[1]}{match[2]}{MASK}" if is_secret_name(match[1]) else match[0]


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a program with ``***`` for secrets: ``--token=x``, ``--token x``, ``TOKEN=x``.

    Other arguments are as ``mask_secrets`` returns them.
    """
    shown = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        is_option = before.startswith("-") and "=" not in before and is_secret_name(before)
        name, equals, _ = argument.partition("=")
        if is_option and not argument.startswith("-"):
            shown.append(MASK)
        else:
            shown.append(f"{name}={MASK}" if equals and is_secret_name(name) else mask_secrets(argument))
    return shown


def mask_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables with their values. Of a secret, a part of its digest is shown, so that other values differ."""
    return {
        name: f"{MASK} ({_digest(value)})" if is_secret_name(name) and value else mask_secrets(value)
        for name, value in variables.items()
    }


def _digest(value: str) -> str:
    """Return 16 bits of a value's digest: enough to distinguish values, too few to find one."""
    return hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:4]
