"""What pytest leaves alone here: the small projects are programs that are checked, and never run."""

from __future__ import annotations

collect_ignore = ["projects"]
