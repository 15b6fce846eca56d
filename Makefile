# Everything a newcomer types. `make demo` and `make test` do their own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete

.PHONY: venv demo test stores coverage check bench chaos fuzz mutants render clean servers

# torch comes first and from pip, which may be told where its CPU build is; uv leaves it as it is. Where
# pip has been told another index, which uv would not ask, and where uv fails, pip installs the rest.
ALL := --constraint constraints.txt --editable '.[all]' --group test --group frameworks --group lint
venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "rankscope needs Python 3.10 or newer, found $$($(PYTHON) --version)"; exit 1; }
	@echo "Setting up $(VENV): PyTorch 2.13.0 and about 80 smaller packages are downloaded."
	@echo "PyTorch is about 200 MB as a CPU build and some gigabytes with CUDA, depending on your pip index."
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==2.13.0
	@if ! $(BIN)/python -m pip config list | grep -qE '\.(index-url|no-index)=' \
	  && $(BIN)/python -m pip install --quiet --constraint constraints.txt --group installer \
	  && $(BIN)/uv pip install --quiet --python $(BIN)/python $(ALL); \
	then :; else $(BIN)/python -m pip install --quiet $(ALL); fi
	@touch $@

demo: venv
	@$(BIN)/rankscope demo

# Six for two cores: tests wait for most of their time for training jobs, servers and browsers of
# their own. Files begin in the order of tests/conftest.py, the longest first.
TEST_PROCESSES ?= 6
# Tests start the product hundreds of times. Where Python is told to keep no bytecode, as it is in
# many images, each start would compile the product anew, and each test process all tests.
test: servers venv
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -rs --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

# The probe runs on older Pythons too. That is a question of the standard library: torch, which is
# half a minute of reading, has been read for the version that everything else is checked with.
check: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 --follow-imports=skip agent/probe/rankscope_probe.py
	$(BIN)/lint-imports

# Traces in object stores, which emulators serve on loopback; that of Azure is not of Python: `npm install azurite`.
# botocore wants other versions than the rest does.
STORES := .venv-stores
stores:
	test -x $(STORES)/bin/python || $(PYTHON) -m venv $(STORES)
	$(STORES)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(STORES)/bin/python -m pip install --quiet --editable '.[analyzers,s3,gcs,azure]' --group stores
	$(STORES)/bin/python -m pytest -p no:cacheprovider tests/test_traces_in_s3.py tests/test_traces_in_gcs_and_azure.py

bench: venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group bench
	$(BIN)/python -m benchmarks

# Every fault of the matrix on one running chain, docs/chaos.md: about eight minutes, with CHAOS_FLAGS="--seed 2".
# As root, which mounting its small disks takes; elsewhere it says which faults are left out.
chaos: servers venv
	$(BIN)/python -m benchmarks.chaos $(CHAOS_FLAGS)

# Every parser of what others wrote, guided by the branches that inputs reach, docs/fuzzing.md. An environment of
# its own, because atheris has no wheel for every Python; FUZZ_FLAGS="--target 'pod list' --runs 1000000".
FUZZING := .venv-fuzzing
fuzz:
	test -x $(FUZZING)/bin/python || $(PYTHON) -m venv $(FUZZING)
	$(FUZZING)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(FUZZING)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[agent,analyzers]' --group fuzz
	$(FUZZING)/bin/python -m benchmarks.fuzzing $(FUZZ_FLAGS)

# Lines and branches that tests execute in their own processes. What a test starts as a program of its
# own is not counted, so that the true share is higher. COVERAGE_FLAGS=tests/test_xid.py runs a part.
coverage: servers venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group coverage
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile \
	  --no-loadscope-reorder --cov --cov-report=term:skip-covered $(COVERAGE_FLAGS)

# Which constants no test notices: 40 drawn ones, or MUTANT_FLAGS="--count 10 --below agent/".
mutants: venv
	$(BIN)/python -m benchmarks.mutants $(MUTANT_FLAGS)

# Pictures of the dashboards, by Grafana's own components; nothing else needs it. 10 minutes and
# 440 MB of npm packages, whose versions package-lock.json holds. RENDER_FLAGS=--help lists the flags.
RENDER := dashboards/render
render: servers venv $(RENDER)/node_modules/.package-lock.json
	node $(RENDER)/build.mjs
	PYTHONPATH=tests:agent:agent/probe:analyzers:dashboards $(BIN)/python $(RENDER)/draw.py $(RENDER_FLAGS)

$(RENDER)/node_modules/.package-lock.json: $(RENDER)/package-lock.json
	@command -v npm >/dev/null || { echo "make render needs Node.js 20 or newer with npm"; exit 1; }
	cd $(RENDER) && npm ci --no-progress
	@touch $@

# What tests need of the system: the real servers that they talk to, a browser for the report, and
# Python's venv module, which Debian packages apart. Ubuntu has the browser as a snap only. Elsewhere
# than as root on Debian or Ubuntu, tests without their server say they skip.
PACKAGES := prometheus prometheus-alertmanager prometheus-node-exporter openssl systemd
servers:
	@needed="$(PACKAGES)"; $(PYTHON) -c 'import ensurepip' 2>/dev/null || needed="$$needed python3-venv"; \
	if grep -qsx 'ID=debian' /etc/os-release; then needed="$$needed chromium"; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! dpkg -s $$needed >/dev/null 2>&1; then \
	  echo "Installing $$needed with apt."; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$needed >/dev/null; \
	fi

clean:
	rm -rf $(VENV) $(FUZZING) $(STORES) .mypy_cache .ruff_cache .pytest_cache dist build
	rm -rf dashboards/render/node_modules dashboards/render/build
