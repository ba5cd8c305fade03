"""Storage that survives a power cut: local and shared file systems, object stores, and memory that fails on purpose."""
