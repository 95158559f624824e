# `make help` lists the targets. Everything runs in .venv, which make creates by itself.

PYTHON ?= python3
PY = .venv/bin/python
# What is installed: each target needs no more than it uses. Who can test can run the demo, too.
TESTS = .venv/.dev
EXAMPLES = .venv/.examples
DEMO = $(if $(wildcard $(TESTS)),$(TESTS),.venv/.demo)

# A process that dies isn't replaced: pytest-xdist would wait for ever for what it had not run.
PYTEST = $(PY) -m pytest -n 3 --dist loadgroup --no-loadscope-reorder --max-worker-restart 0 --durations 10

# Subjects of tests that are several folders of tests/; any other subject is the folder of its name.
OF_log = log client model
OF_store = metadata access storage process power_cuts
OF_foreign = foreign importing
OF_doors = cli console http story

# Spark's workers use the interpreter of .venv, and a Spark installed elsewhere stays out of it.
export PYSPARK_PYTHON := $(CURDIR)/$(PY)
unexport SPARK_HOME PYTHONPATH

# Compiled code is kept: the tests start hundreds of interpreters, and each would compile the package for itself.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv browser demo flights tiers isolation kafka pulsar test test-all test-connect test-cluster test-spark42 jar wheel bench bench-quick bench-smoke lint format proto proto-baseline docs samples drawings clean check-python check-java

help: ## Show this list
	@sed -n 's/^\([a-z0-9%-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '  make %-12s %s\n' "$$target" "$$text"; \
	done

venv: $(TESTS) ## Create .venv with the package (editable) and everything to develop it

demo: check-java $(DEMO) ## Bank transfers through the log: what each isolation level shows
	$(PY) examples/bank.py

flights: check-java $(EXAMPLES) ## A larger example, on the flights out of New York City in 2013
	$(PY) examples/flights.py

tiers: $(EXAMPLES) ## An example of orders that move to a bucket, read from either copy
	$(PY) examples/tiers.py

isolation: check-java $(DEMO) ## An example of two subscriptions at two isolation levels, and of a rewind
	$(PY) examples/isolation.py

kafka: check-java $(EXAMPLES) ## An example of what a Kafka broker wrote, read in place at both levels, and moved
	$(PY) examples/kafka.py

pulsar: check-java $(EXAMPLES) ## The same of ledgers that Pulsar offloaded
	$(PY) examples/pulsar.py

# The catalog's jar is compiled before, or each process would compile one.
test: jar ## Run the tests that hold each promise once, at every change: three to six minutes on two cores
	$(PYTEST)

test-%: jar ## Run the tests of one subject: log, spark, store, foreign, upkeep, tiers, doors, examples
	$(PYTEST) $(addprefix tests/,$(or $(OF_$*),$*))

# Everything there is, also after a failure.
test-all: jar $(EXAMPLES) ## Run all tests, the long ones too, over every kind of log, and every benchmark on little data
	@failed=; \
	$(PYTEST) --all || failed="$$failed test"; \
	for each in test-connect test-cluster test-spark42 bench-quick; do \
		$(MAKE) --no-print-directory ALL=--all $$each || failed="$$failed $$each"; \
	done; \
	[ -z "$$failed" ] || { echo "Failed:$$failed" >&2; exit 1; }

test-connect: jar ## Run the tests over Spark Connect and in other Sparks, which need a process of their own
	$(PY) -m pytest $(ALL) tests/connect

test-cluster: jar ## Run the tests on a cluster of hosts of their own, in namespaces, which root can make
	$(PY) -m pytest $(ALL) tests/cluster

jar: check-java $(TESTS)
	@$(PY) -c 'from txn_source.spark.catalog.jar import jar; jar()'

bench: check-java $(TESTS) ## Measure speed and memory, and print the table
	$(PY) -m benchmarks

bench-quick: check-java $(TESTS) ## Run every benchmark on little data, to see that it works
	$(PY) -m benchmarks --quick

bench-smoke: $(TESTS) ## Run some benchmarks on little data: twenty seconds
	$(PY) -m benchmarks --quick scan producing small_transactions tiers

lint: $(TESTS) ## Check style, formatting and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(TESTS) ## Fix style and formatting where that is safe
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

test-spark42: check-java check-python ## Run the catalog's statements on PySpark 4.2, in an environment of its own
	@test -x build/spark42/bin/python || $(PYTHON) -m venv build/spark42
	build/spark42/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' 'pyspark==4.2.*'
	PYSPARK_PYTHON=$(CURDIR)/build/spark42/bin/python build/spark42/bin/python -m pytest tests/spark/sql

# Only what waits for the network is ended when it takes too long: a browser that is half installed would fail all tests.
browser: ## Install Chromium for the console's tests, where there is no browser and apt-get may
	@for name in "$${TXNLOG_CHROMIUM:-chromium}" chromium-browser google-chrome; do \
		! command -v "$$name" >/dev/null || exit 0; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; \
		timeout 120 apt-get -qq update >/dev/null 2>&1; \
		install='apt-get -qq install --no-install-recommends chromium fonts-liberation'; \
		timeout 240 $$install --download-only >/dev/null 2>&1 && $$install >/dev/null 2>&1 && exit 0; \
	fi; \
	echo 'No browser: the tests of the console in one are skipped.' >&2; \
	echo '  Debian, Ubuntu:  apt-get install chromium' >&2

wheel: $(TESTS) ## Build the wheel, with the jar of the Spark catalog, into dist
	TXNLOG_JAR=required $(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

# The include path is mapped so that the modules land in the package with the right imports.
proto: $(TESTS) ## Generate the protobuf code again
	$(PY) -m grpc_tools.protoc -Itxn_source/_generated=proto --python_out=. --grpc_python_out=. --pyi_out=. \
		txn_source/_generated/txnlog/v1/metadata_service.proto

proto-baseline: $(TESTS) ## Take the protocol as it is for what released clients know
	$(PY) -m grpc_tools.protoc -Iproto --descriptor_set_out=proto/baseline.binpb txnlog/v1/metadata_service.proto

docs: $(TESTS) ## Build the documentation, strictly, into build/site, and look into its pages
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@TXNLOG_SITE=build/site $(PY) -m pytest --quiet --all tests/docs/test_site.py
	@echo 'Open build/site/index.html; for the search:  $(PY) -m http.server -d build/site'

samples: check-java $(TESTS) ## Write again what pages show of what commands print, each from a log that is made for it
	TXNLOG_WRITE_SAMPLES=1 $(PY) -m pytest -q tests/spark/test_docs.py

drawings: $(TESTS) ## Draw the concepts again, each from the state of a log that is made for it
	$(PY) -m docs.tools.drawings

clean: ## Remove .venv and everything else that was made here
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so that an interrupted installation is repeated. An unsuitable interpreter is found before
# anything is made. uv takes a third of pip's time; where it can't be had, or finds nothing, pip installs.
.venv/.%: pyproject.toml | .venv/.uv
	@echo 'Installing into .venv (half a minute the first time) ...'
	@export UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$$($(PY) -m pip config get global.index-url 2>/dev/null)}"; \
	[ -n "$$UV_DEFAULT_INDEX" ] || unset UV_DEFAULT_INDEX; \
	.venv/bin/uv pip install --quiet --python $(PY) --editable '.[$*]' || \
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

.venv/.uv:
	@$(MAKE) --no-print-directory check-python
	@$(PYTHON) -m venv .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check uv || echo 'There is no uv: pip installs.' >&2
	@touch $@

check-python:
	@command -v $(PYTHON) >/dev/null || { \
		echo 'Python 3.11 or newer is needed, and there is no $(PYTHON).' >&2; \
		echo '  Debian, Ubuntu:  apt-get install python3 python3-venv' >&2; \
		echo '  macOS:           brew install python@3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
		echo 'Name another one:  make PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo '$(PYTHON) cannot create virtual environments.' >&2; \
		echo '  Debian, Ubuntu:  apt-get install python3-venv' >&2; exit 1; }

# Spark takes the Java of JAVA_HOME if that is set and else the one on PATH, so this looks at the same one.
check-java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'); \
	if [ "$${version:-0}" -lt 17 ]; then \
		if [ -n "$$version" ]; then found="$$java is older"; \
		else found="$$java cannot be run"; fi; \
		echo "Spark needs Java 17 or newer, and $$found." >&2; \
		echo '  Debian, Ubuntu:  apt-get install openjdk-17-jdk-headless' >&2; \
		echo '  macOS:           brew install openjdk@17' >&2; \
		echo '                   export JAVA_HOME="$$(brew --prefix openjdk@17)"' >&2; \
		[ -z "$$JAVA_HOME" ] || echo "JAVA_HOME is $$JAVA_HOME: point it to the new one, or unset it." >&2; \
		exit 1; \
	fi
