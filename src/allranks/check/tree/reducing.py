"""What is said where nobody brings together what each process has of a score, and what to do."""

from __future__ import annotations

LOGGED = "the value of this process' part is logged as that of the whole"
OF_JAX = "Reduce it in the mapped function: jax.lax.pmean(value, axis_name)."
KEPT = (
    "The processes meet, and each goes on with its own value.",
    "Keep the tensor in a variable, reduce that, and read the result out of it.",
)
STEERS = "the learning rate of each process follows the score of its own part of the data"
OF_PART = "makes its mean of this process' part of the data"
OF_SOME = "makes its mean of what this process has of data that is dealt out"
OF_COUNTER = "what it has counted, which is this process' part of the data"
ELSEWHERE = "is given this process' part of the data, and nobody brings the results together"
COUNTS = "a metric of torcheval gives what this process alone has counted"
OF_TORCHEVAL = "Ask torcheval.metrics.toolkit.sync_and_compute(metric), on every rank."
APART = "what each process has added there is never brought together"
OF_STATE = "Keep it where the framework brings it together (add_state, self.results), or gather it."
FITS = "what is measured on this process' part of the validation data is never averaged"
OF_KERAS = "Give fit hvd.callbacks.MetricAverageCallback(), before the callbacks that follow or store a metric."
IS_GIVEN = " of another file is given what it has added up"
