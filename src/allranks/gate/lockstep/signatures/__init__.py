"""Read the signatures of calls: what must be equal on all ranks."""
