# Everything a user or contributor runs. `make run` and `make test` work on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BULLMQ := benchmarks/peers/bullmq_node
JOBS ?= 3
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install venv run test check format servers bench docs screenshots wheel clean

help: ## what there is to make
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Redrive needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(MAKE) --no-print-directory venv || \
	  { echo "Redrive needs Python's venv: as root, apt-get install python3-venv"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Debian has it in a package of its own
venv:
	apt-get -q -y update >/dev/null
	apt-get -q -y install --no-install-recommends python3-venv >/dev/null

$(VENV)/.runtime: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) -e '.[all]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.txt constraints.txt
	$(PIP) -r requirements-dev.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.dev requirements-bench.txt
	$(PIP) -r requirements-bench.txt
	@touch $@

# a peer that wants older libraries than ours or other peers (arq: redis-py, quix: confluent-kafka, bullmq: croniter) has an
# environment of its own
$(VENV)/%/.made: requirements-bench-%.txt | $(VENV)/.made
	$(BIN)/python -m venv $(VENV)/$*
	$(VENV)/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# not `npm ci`: that wants the binaries of every platform in the lock, and a mirror may have only some of them
$(BULLMQ)/node_modules/.made: $(BULLMQ)/package-lock.json
	@if command -v npm >/dev/null; then \
	  cd $(BULLMQ) && npm install --no-save --ignore-scripts --no-audit --no-fund --loglevel=error && touch node_modules/.made; \
	else \
	  echo "There is no Node 20 or newer with npm here: what is measured beside BullMQ (family redis) will be missing" >&2; \
	fi

# what a family needs beside the peers in requirements-bench.txt, and the servers that it starts
PEERS_redis := $(VENV)/arq/.made $(VENV)/bullmq/.made $(BULLMQ)/node_modules/.made
PEERS_kafka := $(VENV)/quix/.made
SERVERS_redis := redis
SERVERS_redis_store := redis
SERVERS_kafka := kafka
SERVERS_pipeline := kafka
SERVERS_rabbitmq := rabbitmq
SERVERS_sqs := elasticmq
SERVERS_mongodb := mongodb
SERVERS_opensearch := opensearch
SERVERS_postgresql := postgresql
SERVERS_postgresql_store := postgresql
SERVERS_celery := rabbitmq redis
SERVERS_dramatiq := redis rabbitmq
SERVERS_rq := redis
SERVERS_taskiq := redis
SERVERS_faststream := redis
SERVERS_bullmq := redis
SERVERS_processes := redis rabbitmq kafka
FAMILIES := $(sort $(foreach name,$(ONLY),$(firstword $(subst /, ,$(name)))))
MEASURED := $(or $(FAMILIES),celery dramatiq rq taskiq faststream bullmq redis redis_store kafka pipeline rabbitmq sqs mongodb opensearch postgresql postgresql_store processes)
BENCH_SERVERS := $(sort $(foreach family,$(MEASURED),$(SERVERS_$(family))))

install: $(VENV)/.dev ## make .venv with Redrive and the tools

run: $(VENV)/.runtime ## start Redrive on SQLite with a live demonstration; prints the address to open
	@$(BIN)/redrive demo

servers: $(VENV)/.dev ## fetch the real servers that the tests use (cached outside the tree)
ifneq ($(REDRIVE_SERVERS),none)
	$(BIN)/python -m tests.servers install
endif

check: $(VENV)/.dev ## linters, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.generate --check
	$(BIN)/python -m tools.protos --check
	$(BIN)/python -m tools.vendor --check
	$(BIN)/python -m tools.types

format: $(VENV)/.dev ## let ruff format and fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: check servers ## every check and test; REDRIVE_SERVERS=none leaves out those that need a server
	$(BIN)/python -m pytest $(or $(ARGS),-n $(JOBS) --dist loadfile --no-loadscope-reorder)

bench: $(VENV)/.bench $(foreach family,$(MEASURED),$(PEERS_$(family))) ## benchmarks beside their peers, one JSON line a cell; ONLY=family for one family, QUICK=1 to see that it works
ifneq ($(REDRIVE_SERVERS),none)
	$(if $(BENCH_SERVERS),@$(BIN)/python -m tests.servers install $(BENCH_SERVERS) >&2)
endif
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(ROUNDS),--rounds $(ROUNDS)) $(ONLY)

docs: $(VENV)/.dev ## build the documentation into site/
	$(BIN)/python -m tools.generate
	$(BIN)/mkdocs build --strict --quiet

screenshots: $(VENV)/.dev ## pictures of every page of the console, from the demonstration, into docs/images/console/
	$(BIN)/python -m tests.servers install chromium
	$(BIN)/python -m tools.screenshots $(ONLY)

wheel: $(VENV)/.dev ## build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

clean: ## remove everything made in the tree
	rm -rf $(VENV) $(BULLMQ)/node_modules dist site build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
