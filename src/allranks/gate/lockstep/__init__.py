"""Check that all ranks make the same calls in the same order, before a rank enters a call that others do not make."""
