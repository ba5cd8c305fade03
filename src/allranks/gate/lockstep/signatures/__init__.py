"""The forms of calls: what must be alike on all ranks."""
