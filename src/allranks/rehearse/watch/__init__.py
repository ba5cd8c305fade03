"""The watcher: see the system calls of the ranks that use files, from the launcher."""
