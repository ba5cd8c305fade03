"""Run code on one rank and give its result to all ranks; refuse collectives that only some ranks make."""

from allranks.gate.collective import collective as collective
from allranks.gate.log import RankFilter as RankFilter
from allranks.gate.log import configure_logging as configure_logging
from allranks.gate.main_rank import main_rank as main_rank
