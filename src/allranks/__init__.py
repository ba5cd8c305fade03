"""allranks: multi-process training that is correct, and proves it."""
