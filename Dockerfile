# For tests on CPUs in a project that uses allranks; not built by our own tests, which have no Docker.
#   docker build -t allranks . && docker run --rm -v "$PWD:/work" allranks pytest
# EXTRA is jax, torch or all; torch as PyPI has it brings CUDA, several gigabytes.
FROM python:3.11-slim
ARG EXTRA=jax
COPY pyproject.toml README.md LICENSE constraints.txt /allranks/
COPY src /allranks/src
RUN pip install --no-cache-dir -c /allranks/constraints.txt "/allranks[$EXTRA]" pytest
WORKDIR /work
