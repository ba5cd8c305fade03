"""How the place of a run is called: the folder that it writes to, and what that folder is named after."""

from __future__ import annotations

import re

from allranks.check.tables.effects import Effect

NAMED = Effect("=", "named")
FREE = Effect("while", "free")
_FOLDER = r"(dir|directory|folder|dirname|dirpath)(_?(path|name))?s?$"
_OF_A_RUN = r"(run|exp|expt|experiment|job|trial|session|out|output|log|save|saved|ckpt|checkpoint|work|result|eval)s?"
_PLACE = re.compile(rf"(?i)(^|_|[a-z]){_FOLDER}|(^|_){_OF_A_RUN}_?(path|root|id|name|uid|uuid)$")
# On every process its own, as it must be; or of something else than a run.
_OWN = re.compile(r"(?i)te?mp|cache|local|lock|data_?(dir|folder|path)|wandb|trace|prof")
# The ends of the names of functions that look which folders are there, and name the next one.
_NEXT = re.compile(r"(?i)(^|[._])(increment|next|unique|new)_(\w+_)?(path|name|dir|folder|run|version|exp)$")
# What gives a name from the clock.
STAMPS: frozenset[str] = frozenset(
    ["time.strftime", "time.ctime", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today"]
)
# Calls of frameworks that are told where all processes write; to the rest of their keywords, rank 0 does.
TOLD_BY_KEYWORD: frozenset[str] = frozenset(
    ["TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "GRPOConfig", "RewardConfig"]
)


def is_place(name: str) -> bool:
    """Whether a variable, an attribute, an option or a key holds, by its name, where a run writes."""
    return bool(_PLACE.search(name)) and not _OWN.search(name)


def names_the_next(function: str) -> bool:
    """Whether a function, by its name, gives the first folder that is not there yet."""
    return bool(_NEXT.search(function))
