"""The in-memory tier: the newest step of a job, kept in the memory of its hosts."""
