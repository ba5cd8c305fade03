"""What happens where ranks use a path too early or too late, for nobody waits for another."""

from __future__ import annotations

NOT_WHOLE = "A rank that is faster than rank 0 finds no file, an old one, or half of one."
NO_FOLDER = "A rank that is faster than rank 0 raises FileNotFoundError: the folder does not exist yet."
_DELETED = "A slower rank finds nothing after rank 0 has deleted it, or a faster one reads what is about to be deleted."
_PARTS = "Parts of slower ranks are missing in the result of rank 0, or are half written."


def harm(message: str) -> str:
    """Return what happens on the cluster where a finding says this."""
    if message.endswith(("its folder yet", "made it yet")):
        return NO_FOLDER
    if "delete" in message:
        return _DELETED
    return _PARTS if message.startswith("rank 0") else NOT_WHOLE
