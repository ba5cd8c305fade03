"""All effects of the tables."""

from __future__ import annotations

from allranks.check.tables.effects import REST, Effect
from allranks.check.tables.fetched import FETCHED
from allranks.check.tables.written import WRITTEN

EFFECTS: tuple[Effect, ...] = (*WRITTEN, *FETCHED, *REST)
