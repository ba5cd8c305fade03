from jax.experimental import multihost_utils


def scores(batch, found):
    known = batch.labels >= 0
    rows, labels = batch.rows[known], batch.labels[known]
    rows = multihost_utils.process_allgather(rows)  # expect: AR207
    labels = multihost_utils.process_allgather(labels).reshape(-1)  # expect: AR207
    worst = (found > 3).nonzero().flatten()
    return rows, labels, multihost_utils.process_allgather(found[worst])  # expect: AR207


def all_scores(batch):
    rows = multihost_utils.process_allgather(batch.rows)
    return rows.reshape(-1, rows.shape[-1])
