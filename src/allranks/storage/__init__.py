"""Storage that survives a power cut: local and shared file systems, object stores, and memory that fails on purpose."""

from .local import LocalStorage
from .memory import MemoryStorage

__all__ = ["LocalStorage", "MemoryStorage"]
