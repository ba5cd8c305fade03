"""Store files durably: local and shared file systems, object stores, and a memory storage that fails on demand."""

from .local import LocalStorage
from .memory import MemoryStorage

__all__ = ["LocalStorage", "MemoryStorage"]
