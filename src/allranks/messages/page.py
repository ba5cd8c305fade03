"""Generate docs/explain.md from the tables of known messages."""

from __future__ import annotations

from allranks.messages import known_gloo, known_jax, known_system, known_torch
from allranks.messages.known import KINDS, KnownMessage

_HEAD = """\
# Explain known messages of a log

This page explains known messages of XLA, JAX, Gloo, NCCL, torch and the system: what each message means, what to do,
and which timeout applies.

```
allranks explain slurm-4711.out          # or several logs, or - for standard input; --json
```

`allranks explain` reads the logs of any job, also of jobs that do not use allranks. The output lists causes first, then
ranks that wait for others, then consequences. Each kind of message is shown once: its first line, how often it occurs,
and the ranks that printed it. The exit code is 0 if a known message was found, 1 if none was found.

`allranks run` explains messages directly below the first message of a kind, once per job. It explains causes and
waits. It does not explain consequences, because the report at the end of the job names the first failure. If a job
prints more than half a megabyte per second, `allranks run` searches only a part of the output.

This page is made from the code (`python -m allranks.messages.page > docs/explain.md`).
"""
_PARTS = (
    ("XLA and JAX", known_jax.KNOWN),
    ("Gloo", known_gloo.KNOWN),
    ("torch and NCCL", known_torch.KNOWN),
    ("The system", known_system.KNOWN),
)


def generate_page() -> str:
    """Return the text of docs/explain.md."""
    kinds = "\n".join(f"- *{kind}*: {meaning}." for kind, meaning in KINDS.items())
    parts = [f"## {title}\n\n" + "\n".join(map(_entry, known)) for title, known in _PARTS]
    return "\n".join([_HEAD, kinds + "\n", *parts])


def _entry(known: KnownMessage) -> str:
    head = f"### {known.name}\n{_capital(known.title)}. *{known.kind}*; printed by {known.source}."
    timeout = f"\n- Timeout: {known.timeout}." if known.timeout else ""
    return f"{head}\n```\n{known.example.strip()}\n```\n- {known.means}\n- To do: {known.do}{timeout}\n"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    print(generate_page(), end="")
