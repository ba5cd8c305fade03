"""Calls that add nothing: what comes out is as uniform as what goes in, or does what the function given to it does."""

from __future__ import annotations

import re
from datetime import datetime

_PLAIN = re.compile(r"([^%]|%[YymdjbBaAHIMSfp])+")  # what strftime writes alike everywhere
_OF_A_DAY = (datetime(2021, 12, 31), datetime(2021, 12, 31, 23, 59, 59, 999999))  # its begin and its end
_OF_TIME = re.compile(r"%[-#_0^]?[HIklMSfspPXcTRr]")  # what strftime fills in that changes within a day


def _each(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


PASSING = _each(
    "str repr format abs min max sum sorted list tuple set len round any all float next iter reversed enumerate zip",
    "hash divmod pow",
    "os.path.join os.path.abspath os.path.dirname os.path.basename os.path.expanduser os.path.realpath",
    "os.path.normpath os.fspath pathlib.Path pathlib.PurePath pathlib.Path.joinpath Path",
    "pandas.DatetimeIndex pandas.to_datetime pandas.Timestamp pandas.Index pandas.Series",
)
PASSING_METHODS = _each(
    "format join joinpath strip rstrip lstrip lower upper replace split rsplit partition rpartition removesuffix",
    "removeprefix splitlines with_suffix with_name as_posix resolve",
    "expanduser absolute strftime isoformat item get copy zfill hex",
    "wrapattr",  # of tqdm, what shows how far a file is written: the file
)
# Methods that classes of torch and of others have: whose they are, their name does not say.
OF_MANY = _each(
    "state_dict load_state_dict zero_grad named_parameters named_modules named_buffers set_epoch get_last_lr",
    "from_pretrained save_pretrained push_to_hub resize_token_embeddings clip_grad_norm_ requires_grad_ to_dict",
)
# They give what they are given, and show how far it has been gone through.
ITERATING = _each("tqdm.tqdm tqdm.auto.tqdm tqdm.rich.tqdm tqdm.notebook.tqdm rich.progress.track")
# Methods of modules and metrics that return what they are called on.
SELVES = _each(
    "to cuda cpu train eval half float double bfloat16 requires_grad_ "
    "with_suffix with_name with_stem joinpath resolve absolute expanduser"
)
# Contexts, and decorators, under which no gradient is made.
GRAPHLESS = _each("torch.no_grad torch.inference_mode no_grad inference_mode")
# What they are given is in the list, set or queue from then on.
FILLING = _each("append appendleft add extend insert put")
ADDING = FILLING | _each("update setdefault")
# They tell people what they are given, and do nothing with it.
TELLING = _each("debug info warning warn error critical log set_task_status")
# They make an object of its bytes: of those that all have been sent, the same everywhere.
UNPACKS = _each("pickle.loads _pickle.loads dill.loads cloudpickle.loads json.loads")
# What they are given by keyword is kept under that name, or under that key.
BAGS = _each(
    "dict update SimpleNamespace Namespace EasyDict edict Munch Box AttrDict DotDict Config ConfigDict replace",
)
# Keywords under which a call is told a part of the names of the files that it writes.
NAMING = _each(
    "name id run_name weight_name prefix suffix filename file_name filename_prefix basename base_name tag stem"
    " name_prefix save_prefix"
)
# Called with a function, they return one that does the same.
WRAPPING = _each(
    "jax.jit jax.pmap jax.checkpoint jax.remat torch.compile functools.wraps functools.lru_cache functools.cache",
    "torch.no_grad torch.inference_mode contextlib.contextmanager staticmethod classmethod functools.update_wrapper",
    "equinox.filter_jit eqx.filter_jit",
)


def is_of_day(form: object) -> bool:
    """Whether ``strftime`` gives the day with this, and nothing that changes within it: processes that are started
    together have the same."""
    return isinstance(form, str) and "%" in form and _OF_TIME.search(form) is None


def is_cut_to_day(form: str, cut: str) -> bool:
    """Whether a slice (``:-6``) of what ``strftime`` gives holds the day, and nothing that changes within it."""
    if _PLAIN.fullmatch(form) is None:
        return False
    ends = [int(end) if end else None for end in cut.split(":")]
    first, last = (time.strftime(form)[slice(*ends)] for time in _OF_A_DAY)
    return first == last
