"""The watcher of file effects: system calls of the ranks, seen from the launcher."""
