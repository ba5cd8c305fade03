"""Find out whether this machine has a GPU, without a framework."""

from __future__ import annotations

import os


def default_accelerator() -> str:
    """Return ``"none"`` on a machine with a GPU of NVIDIA or AMD, and ``"cpu"`` on any other."""
    devices = os.listdir("/dev") if os.path.isdir("/dev") else []
    has_gpu = any(name == "kfd" or (name[:6] == "nvidia" and name[6:].isdigit()) for name in devices)
    return "none" if has_gpu else "cpu"
