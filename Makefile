# One command list for people, hooks and CI. `make` alone explains itself.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# Inside .venv, so that removing the environment also forgets that it was set up.
STAMP := .venv/.setup-complete
EXPORT := scripts/uv export --frozen --quiet --no-header --no-emit-project
PYTEST_ARGS ?=
# A worker waits for brokers and browsers a quarter of its time: three more than two cores fill them, where nobody
# else wants these (docs/testing.md). All share one pair of clusters. 0 runs in one process.
PYTEST_WORKERS ?= 5
# Many containers set it. Without compiled modules every process compiles Airflow, Spark and us anew: 10 s of
# CPU instead of 4 for each of a few hundred.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help hooks setup demo up feed down check lint types layers unit lock browser kerberos promtool compiled test bench soak advisories requirements clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Prepare .venv, Java and Kafka (quick when done already)

$(STAMP): uv.lock pyproject.toml scripts/setup scripts/uv scripts/prepare.py scripts/native.py include/onceover/spark/launch/trial.py include/onceover/spark/launch/quickstart.py include/onceover_lab/embed/archive.py include/onceover_lab/embed/makearchive.py include/onceover_lab/embed/trials.py $(wildcard include/onceover_lab/embed/checksums/*.txt) $(shell find include/onceover -name '*.c')
	@scripts/setup
	@touch $@

demo: setup ## Copy real flights between two clusters, kill the driver, compare: under 4 minutes
	@$(BIN)/onceover demo

up: setup ## Start both clusters, Kafka Connect and Airflow, and keep them running
	@$(BIN)/onceover clusters up --airflow

feed: setup ## The same, and let the demo's flights flow into cluster east
	@$(BIN)/onceover clusters up --airflow --feed

down: ## Stop what `make up` and `make feed` started; data are kept
	@if [ -x $(BIN)/onceover ]; then $(BIN)/onceover clusters down; fi

check: lint types layers unit ## Lint, types, layers and unit tests

hooks: ## Have git run `make check` before each commit
	@git config core.hooksPath scripts/hooks

lint: setup
	@echo "== lint and format (ruff)"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ."; exit 1; }

types: setup
	@echo "== types (pyrefly)"
	@out=$$($(BIN)/pyrefly check --summary=none 2>&1) || { echo "$$out"; exit 1; }

layers: setup
	@echo "== layers (import-linter)"
	@out=$$($(BIN)/lint-imports 2>&1) || { echo "$$out"; exit 1; }

unit: setup
	@echo "== unit tests"
	@$(BIN)/pytest tests/unit -m "not soak" $(PYTEST_ARGS)

lock: setup
	@echo "== lock file and requirements.txt"
	@scripts/uv lock --check --quiet || { echo "uv.lock does not match pyproject.toml; run: uv lock"; exit 1; }
	@diff -u requirements.txt <($(EXPORT) --no-dev) || { echo "requirements.txt is outdated; run: make requirements"; exit 1; }
	@diff -u docker/requirements.txt <($(EXPORT) --only-group image) || { echo "docker/requirements.txt is outdated; run: make requirements"; exit 1; }
	@diff -u docker/native.txt <($(EXPORT) --only-group native) || { echo "docker/native.txt is outdated; run: make requirements"; exit 1; }

browser:
	@scripts/browser

kerberos:
	@scripts/kerberos

# Each of the workers would compile for itself what all of them load: on a fresh machine 25 s of CPU that one takes
# beside what is fetched. Whatever cannot be loaded is told by the tests.
compiled:
	@[ -d tests/__pycache__ ] || $(BIN)/pytest --collect-only -qq > /dev/null 2>&1 || true

# Both may want the lists of packages fetched, one at a time.
promtool: browser
	@scripts/promtool

test: setup ## Everything: lock, lint, types, layers and all tests with real brokers
	@$(MAKE) -j4 --output-sync=target browser promtool compiled lock lint types layers
	@echo "== tests (pytest)"
	@$(BIN)/pytest -m "not soak" -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

bench: setup ## Compare throughput, CPU and latency with MirrorMaker 2
	@$(BIN)/onceover bench

# On disk: chaos rounds and large logs would fill the memory in which `make test` works.
soak: export TMPDIR := $(or $(TMPDIR),/tmp)
soak: setup browser kerberos ## Long matrices and chaos rounds
	@$(BIN)/pytest -m soak $(PYTEST_ARGS)
	@ONCEOVER_EXAMPLES=20 $(BIN)/pytest tests/unit -m "not soak" $(PYTEST_ARGS)

advisories: setup ## Ask osv.dev for known vulnerabilities of what is locked
	@scripts/uv audit --frozen

requirements: setup ## Export requirements.txt from the lock file
	@$(EXPORT) --no-dev > requirements.txt
	@$(EXPORT) --only-group image > docker/requirements.txt
	@$(EXPORT) --only-group native > docker/native.txt

clean: down ## Stop what runs and remove everything that was made
	@rm -rf .venv .cache var .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@rm -rf spark-warehouse metastore_db derby.log
	@find include/onceover -name '*.so' -delete
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
