"""Compare the state of all ranks."""
