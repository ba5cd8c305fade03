"""One rank acts, all ranks know; and nobody starts alone what needs everybody."""

from allranks.gate.collective import collective as collective
from allranks.gate.log import RankFilter as RankFilter
from allranks.gate.log import configure_logging as configure_logging
from allranks.gate.main_rank import main_rank as main_rank
