"""allranks: multi-process training that is correct, and proves it."""

from allranks.gate.collective import collective as collective
from allranks.gate.main_rank import main_rank as main_rank
