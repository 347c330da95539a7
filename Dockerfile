# The environment of `make gpu` on CUDA 13: the same commands, nothing else. Not built here.
#   docker build -t disco-rl .
FROM nvidia/cuda:13.0.1-devel-ubuntu22.04
RUN apt-get update && apt-get install -y --no-install-recommends \
        build-essential ca-certificates git make python3.11 python3.11-dev python3.11-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3.11 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir uv
WORKDIR /opt/disco-rl
COPY pyproject.toml README.md LICENSE Makefile ./
COPY constraints constraints
COPY configs configs
COPY disco_rl disco_rl
COPY data_pipeline data_pipeline
RUN make gpu UV=/opt/uv/bin/uv
ENV PATH=/opt/disco-rl/.venv/bin:$PATH
