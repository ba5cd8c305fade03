"""List what torch's optimizers keep for each parameter, by the names in their states.

With it, a checkpoint of another optimizer is distinguished from one of a parameter that had no gradient yet.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateNames:
    """The names of the entries that an optimizer keeps for each parameter.

    ``shaped``: entries with the parameter's shape. ``unshaped``: entries with another shape.
    ``may``: optional entries, of any shape. ``empty``: lists that may be empty, and are then missing in a checkpoint.
    """

    shaped: tuple[str, ...] = ()
    unshaped: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()


_ADAM = StateNames(("exp_avg", "exp_avg_sq"), ("step",), ("max_exp_avg_sq",))

OPTIMIZERS = {
    "ASGD": StateNames(("ax",), ("step", "eta", "mu")),
    "Adadelta": StateNames(("square_avg", "acc_delta"), ("step",)),
    "Adafactor": StateNames((), ("step",), ("row_var", "col_var", "variance")),
    "Adagrad": StateNames(("sum",), ("step",)),
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "Adamax": StateNames(("exp_avg", "exp_inf"), ("step",)),
    "LBFGS": StateNames(
        unshaped=("func_evals", "n_iter"),
        may=("d", "t", "al", "H_diag", "prev_flat_grad", "prev_loss", "old_dirs", "old_stps", "ro"),
        empty=("old_dirs", "old_stps", "ro"),
    ),
    "Muon": StateNames(may=("momentum_buffer",)),
    "NAdam": StateNames(("exp_avg", "exp_avg_sq"), ("step", "mu_product")),
    "RAdam": _ADAM,
    "RMSprop": StateNames(("square_avg",), ("step",), ("momentum_buffer", "grad_avg")),
    "Rprop": StateNames(("prev", "step_size"), ("step",)),
    "SGD": StateNames(may=("momentum_buffer",)),
    "SparseAdam": StateNames(("exp_avg", "exp_avg_sq"), ("step",)),
}
# Entries of these names have the parameter's shape in every optimizer of torch.
SHAPED = frozenset(name for names in OPTIMIZERS.values() for name in names.shaped) | {
    *("max_exp_avg_sq", "momentum_buffer", "grad_avg", "variance")
}
