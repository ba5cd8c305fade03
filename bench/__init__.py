"""Benches: what allranks costs and gives, against its peers on the same work in the same run. See docs/performance.md."""
