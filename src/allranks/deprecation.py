"""Keep old names of attributes working for one release, with a DeprecationWarning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any


def renamed_attribute(of: object, name: str, names: Mapping[str, str]) -> Any:
    """Return the attribute of ``of`` that had the old name ``name``. ``names`` maps old names to new names.

    Call it in a class's ``__getattr__``. Raises AttributeError for a name that is not an old name.
    """
    kind = type(of).__name__
    if name not in names:
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")
    warnings.warn(f"{kind}.{name} is now called {kind}.{names[name]}", DeprecationWarning, stacklevel=3)
    return getattr(of, names[name])
