# The environment of `make gpu` on CUDA 13: the same commands, nothing else. Not built here.
#   docker build -t disco-rl .
FROM nvidia/cuda:13.0.1-devel-ubuntu22.04
RUN apt-get update && apt-get install -y --no-install-recommends \
        build-essential ca-certificates git make python3-venv wget \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir uv
# uv brings Python: Ubuntu 22.04's python3.11 is a release candidate, which packages refuse. wget is
# for KubeRay's health checks.
ENV UV_PYTHON_PREFERENCE=only-managed UV_PYTHON_INSTALL_DIR=/opt/python
WORKDIR /opt/disco-rl
COPY pyproject.toml README.md LICENSE Makefile ./
COPY constraints constraints
COPY configs configs
COPY disco_rl disco_rl
COPY data_pipeline data_pipeline
RUN make gpu UV=/opt/uv/bin/uv
ENV PATH=/opt/disco-rl/.venv/bin:$PATH
