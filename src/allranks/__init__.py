"""allranks: multi-process training that is correct, and proves it."""

from allranks.gate.collective import collective as collective
from allranks.gate.log import log as log
from allranks.gate.log import print as print  # noqa: A004
from allranks.gate.main_rank import main_rank as main_rank
from allranks.gate.writer import RankWriter as RankWriter
from allranks.world.base import World as World
from allranks.world.detect import current as current
from allranks.world.detect import init as init
from allranks.world.simulated import SimulatedWorld as SimulatedWorld
