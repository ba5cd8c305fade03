"""A rank: cases.py, where the example is one of Lightning, which is imported here once for all ranks."""

import cases  # noqa: F401
import lightning.pytorch  # noqa: F401
