"""Keep the newest step of a job in the memory of its hosts: the in-memory tier."""
