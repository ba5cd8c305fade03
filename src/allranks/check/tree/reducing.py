"""What is said where nobody brings together what each process has of a score, and what to do."""

from __future__ import annotations

LOGGED = "the value of this process' part is logged as that of all data"
OF_JAX = "Reduce it in the mapped function: jax.lax.pmean(value, axis_name)."
KEPT = (
    "Each process continues with its own value.",
    "Keep the tensor in a variable, reduce that, and read the result out of it.",
)
STEERS = "the learning rate of each process follows the score of its own part of the data"
OF_PART = "averages this process' part of the data"
OF_SOME = "averages this process' part of sharded data"
OF_COUNTER = "what it has counted on this process' part of the data"
ELSEWHERE = "gets this process' part of the data, and nothing combines the results"
COUNTS = "a metric of torcheval returns what only this process has counted"
OF_TORCHEVAL = "Call torcheval.metrics.toolkit.sync_and_compute(metric) on every rank."
APART = "what each process has added there is never combined"
OF_STATE = "Keep it where the framework combines it (add_state, self.results), or gather it."
FITS = "what is measured on this process' part of the validation data is never averaged"
OF_KERAS = "Give fit hvd.callbacks.MetricAverageCallback(), before the callbacks that follow or store a metric."
IS_GIVEN = " of another file is given what it has added up"
