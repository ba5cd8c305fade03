"""Check that all ranks make the same collectives in the same order, before a rank enters one that would hang."""
