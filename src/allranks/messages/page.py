"""docs/explain.md, drawn from the tables of known messages."""

from __future__ import annotations

from allranks.messages import known_gloo, known_jax, known_system, known_torch
from allranks.messages.known import KINDS, Known

_HEAD = """\
# `allranks explain`

What the messages of XLA, JAX, Gloo, NCCL, torch and the system mean, what to do, and which timeout governs them.

```
allranks explain slurm-4711.out          # or several logs, or - for standard input; --json
```

It reads the logs of any job, also of one that never used allranks: causes first, then who waits for others, then
consequences; each kind of message once, with the line of its first, how often it came, and the ranks that said it.
The exit code is 0 if a message was found, 1 if none was.

`allranks run` says the same in place: below the first message of a kind, once a job, when the ranks had a moment to say
it too. Causes and waits are explained so; consequences are not, since the end of the job names the first failure. It
costs nothing that can be seen: of more than half a megabyte of output a second only a part is searched.

This page is drawn from the code (`python -m allranks.messages.page > docs/explain.md`).
"""
_PARTS = (
    ("XLA and JAX", known_jax.KNOWN),
    ("Gloo", known_gloo.KNOWN),
    ("torch and NCCL", known_torch.KNOWN),
    ("The system", known_system.KNOWN),
)


def page() -> str:
    """Return the whole page."""
    kinds = "\n".join(f"- *{kind}*: {meaning}." for kind, meaning in KINDS.items())
    parts = [f"## {title}\n\n" + "\n".join(map(_entry, known)) for title, known in _PARTS]
    return "\n".join([_HEAD, kinds + "\n", *parts])


def _entry(known: Known) -> str:
    head = f"### {known.name}\n{_capital(known.title)}. *{known.kind}*; printed by {known.source}."
    timeout = f"\n- Timeout: {known.timeout}." if known.timeout else ""
    return f"{head}\n```\n{known.example.strip()}\n```\n- {known.means}\n- To do: {known.do}{timeout}\n"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    print(page(), end="")
