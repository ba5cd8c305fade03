"""Benches: what allranks costs and gives, as ratios to its peers on the same work in the same run."""
