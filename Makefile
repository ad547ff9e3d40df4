# Everything a fresh machine needs is set up by the targets themselves, into .venv; nothing here needs root.
# PYTHON=/path/to/python3.12 make run   chooses the Python; by default the newest of 3.11 ... 3.14 on the PATH.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Tests and pipelines start hundreds of processes: without compiled files each of them would compile the sources anew.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
BUILT := pyproject.toml setup.py constraints.txt $(wildcard src/waterclock/wheel/*.pyx src/waterclock/wheel/*.px[di] src/waterclock/wheel/*.h) \
	src/waterclock/clock.h $(wildcard src/waterclock/timer/*.pyx src/waterclock/sinks/*.pyx) \
	$(wildcard src/waterclock/purgatory/*.pyx src/waterclock/purgatory/*.pxd) src/waterclock/purgatory/delayed.py src/waterclock/purgatory/completions.py \
	src/waterclock/purgatory/waiting.py \
	$(wildcard src/waterclock/streaming/state/compiled/*.pyx src/waterclock/streaming/state/compiled/*.pxd src/waterclock/streaming/state/compiled/*.h)
ARGS ?=
# What failed is run once more, alone, with the options in front of `--` (tests/steady.py).
STEADY = MAKE_TARGET=$@ UNSTEADY=$(CURDIR)/tests/unsteady.txt $(CURDIR)/$(BIN)/python -m tests.steady
# Who stays together, and who begins, is said by tests/side_by_side.py. Four share two cores in `make test`: a good part of
# their time is waiting, for a broker, for a kill to be noticed. A campaign has a Spark in each process, and the memory of it.
SIDE_BY_SIDE := --dist loadfile --no-loadscope-reorder --numprocesses
# the minutes of the slower tests in `make test`, where ARGS chooses none, in which they take turns (tests/turns.py)
MINUTES_OF_TEST := 1
# the minutes of all campaigns of a run, in which they take turns; `all` runs them all
MINUTES_OF_TEST_LONG := 3
MINUTES_OF_TEST_SERVERS := 2
# of its other slower tests, as MINUTES_OF_TEST: each has its turn within 3 days
MINUTES_BESIDE_SERVERS := 3
MINUTES_OF_TABLES := 0.25

# once, before several processes want them at the same time
JARS := import pyspark; from waterclock.bench.servers import apache, connector, hdfs; apache.fetch(); connector.fetch(pyspark.__version__); hdfs.fetch()

.PHONY: help attack run run-servers test test-loaded test-long test-servers test-tables test-wheel check check-native format bench docs promises pictures clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

run: .venv/ready-run  ## the main job: real traffic fines through Spark, a report at the end (about a minute); ARGS="--engine local": without Java
	@$(BIN)/waterclock demo fines $(ARGS)

run-servers: .venv/ready-servers  ## the main job killed -9 and compared, on our broker and on servers (Java 17, Maven, PostgreSQL; minutes)
	@command -v mvn >/dev/null && command -v java >/dev/null && { command -v initdb || ls /usr/lib/postgresql/*/bin/initdb; } \
	  >/dev/null 2>&1 || { echo "The servers are Apache Kafka, which needs Java 17 and Maven, and PostgreSQL." \
	  "Install them (Debian: apt install default-jre-headless maven postgresql) and run the same command again." >&2; exit 1; }
	@$(BIN)/waterclock demo kills --on own --folder out/kills/own $(ARGS)
	@$(BIN)/waterclock demo kills --on servers --folder out/kills/servers $(ARGS)

test: .venv/ready-test  ## the tests (minutes): all of the rooms that changed, of the other slower ones those whose turn it is; ARGS="-k wheel" for some, TEST_MINUTES=all for all
test-loaded: .venv/ready-test  ## the same beside eight busy loops: what is red here hangs on the speed of the machine (half an hour)
test-loaded: export BESIDE := 8
test test-loaded:
	@TEST_MINUTES=$${TEST_MINUTES:-$(if $(ARGS),all,$(MINUTES_OF_TEST))} $(STEADY) -- -m "not long and not servers" $(SIDE_BY_SIDE) 4 $(ARGS)

test-long: .venv/ready-test  ## the long campaigns, for CAMPAIGN_MINUTES (3; `all` for the whole), with the seed of the day
	@CAMPAIGN_MINUTES=$${CAMPAIGN_MINUTES:-$(MINUTES_OF_TEST_LONG)} \
	  $(STEADY) -- -m "long and not servers" $(SIDE_BY_SIDE) 2 $(ARGS)

test-servers: .venv/ready-test  ## the broker's conformance suite against Apache Kafka, its tools and Spark's connector (JDK 17, Maven; minutes)
	@command -v mvn >/dev/null && command -v javac >/dev/null || { echo "Apache Kafka and Debezium need a JDK (17) and Maven." \
	  "Install them (Debian: apt install default-jdk-headless maven) and run the same command again." >&2; exit 1; }
	@$(BIN)/python -c "$(JARS)"
	@BROKERS=ours,apache CAMPAIGN_MINUTES=$${CAMPAIGN_MINUTES:-$(MINUTES_OF_TEST_SERVERS)} \
	  TEST_MINUTES=$${TEST_MINUTES:-$(if $(ARGS),all,$(MINUTES_BESIDE_SERVERS))} \
	  $(STEADY) -W ignore::pytest.PytestUnraisableExceptionWarning -- -m servers $(SIDE_BY_SIDE) 2 \
	  tests/cdc/test_beside_debezium.py tests/cdc/test_jdbc_sink.py \
	  tests/conformance tests/broker/api/test_admin_clients.py tests/broker/groups/test_clients.py \
	  tests/examples/test_fines_kills.py tests/local/test_on_kafka.py tests/relay/test_laps_on_kafka.py tests/relay/test_promises.py \
	  tests/relay/test_dead_owner.py tests/relay/test_refusals_on_kafka.py tests/relay/kills tests/outbox/test_kills.py tests/streaming/places \
	  tests/spark/test_join_crashes.py $(ARGS)

# Delta Lake's and Iceberg's libraries are built for an older Spark: what needs them has a pyspark of its own.
test-tables: .venv/ready-test  ## tables of Spark's catalogs, with the Spark that their libraries are built for (Java 17, Maven; a minute)
	@$(BIN)/python -c "from waterclock.bench.servers import tables; tables.fetch()"
	@PYTHONPATH=$(CURDIR)/build/tables/python CAMPAIGN_MINUTES=$${CAMPAIGN_MINUTES:-$(MINUTES_OF_TABLES)} \
	  $(STEADY) -W ignore::pytest.PytestUnraisableExceptionWarning -- -m servers \
	  tests/spark/tables tests/sinks/test_contract.py tests/sinks/test_contract_tables.py tests/sinks/test_epochs.py $(ARGS)

SCHEMA := $(BIN)/check-jsonschema --quiet --builtin-schema
check: .venv/ready-check  ## format, lint, types; workflows, container and compose file by their linters
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file tests/calls.ini
	@$(BIN)/zizmor --offline --quiet --no-progress .github
	@$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	@$(SCHEMA) vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	@$(SCHEMA) vendor.compose-spec packaging/container/compose.yaml
	@$(SCHEMA) vendor.citation-file-format CITATION.cff
	@$(BIN)/hadolint packaging/container/Containerfile

# Of the tracked files alone: what an installation in the clone left is in no distribution. An environment stays in one process.
test-wheel: .venv/ready-wheel  ## the wheel of each Python, with a compiler and without, in environments outside of the clone (minutes)
	@echo "building source distributions, and from them a wheel for each Python in environments of their own (three minutes; Spark twice)"
	@rm -rf build/wheel && mkdir -p build/wheel/tree
	@git ls-files -z | xargs -0 cp --parents --no-dereference --target-directory build/wheel/tree
	@for part in . demos; do PIP_CONSTRAINT=$(CURDIR)/constraints.txt \
	  $(BIN)/python -m build --sdist --outdir build/wheel/sdist build/wheel/tree/$$part >build/wheel/sdist.log || exit 1; done
	@WHEELS=$(CURDIR)/build/wheel $(BIN)/python -m pytest $(SIDE_BY_SIDE) 2 tests/installed $(ARGS)

SANITIZED := -fsanitize=address,undefined -fno-sanitize-recover=undefined -O1 -g1
# The sources are copied: a module built in place for the sanitizers would be taken by everybody else.
# Arrow's buffers come from the system's allocator: of its own one the sanitizer does not know where they end.
check-native: .venv/ready-test  ## the tests of what is compiled under AddressSanitizer and UBSan (gcc; minutes)
	@command -v gcc >/dev/null || { echo "The sanitizers come with gcc, and there is none on the PATH." \
	  "Install it (Debian: apt install gcc) and run the same command again." >&2; exit 1; }
	@$(PIP) install --constraint constraints.txt --group native
	@rm -rf build/native && mkdir -p build/native
	@cp -a src tests examples bench setup.py pyproject.toml README.md LICENSE build/native
	@find build/native -name '*.so' -delete
	@cd build/native && CFLAGS="$(SANITIZED)" CXXFLAGS="$(SANITIZED)" $(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace
	@cd build/native && plain=$$(find src -name '*.so' -exec grep -L __asan_init {} +) && [ -z "$$plain" ] || \
	  { echo "Built without the sanitizers: $$plain. C++ is built with CXXFLAGS, C with CFLAGS." >&2; exit 1; }
	@cd build/native && LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONMALLOC=malloc ARROW_DEFAULT_MEMORY_POOL=system PYTHONPATH=src \
	  $(STEADY) -p no:cacheprovider -- -m "not spark and not long and not memory" \
	  -k "not [plain and not -plain and not [reference and not -reference and not PlainLife and not ReferenceLife" $(SIDE_BY_SIDE) 2 \
	  tests/test_import.py::test_a_compiled_wheel_that_was_built_is_used tests/wheel tests/timer/test_adding.py \
	  tests/timer/test_reschedule.py tests/purgatory tests/sinks/test_sqlite_rows.py tests/cdc/test_compiled_events.py tests/cdc/test_compiled_rows.py tests/streaming/state/compiled $(ARGS)

format: .venv/ready-check  ## put the code into its format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: .venv/ready-bench  ## the benchmarks, contenders side by side (an hour); ARGS=wheel for one; into bench/results
	@$(BIN)/python -m bench.run $(ARGS)

docs: .venv/ready-docs  ## the site of the documents, into out/docs; a warning is an error (seconds)
	@$(BIN)/python -m docsite

# New universes with each commit; MINUTES of them, on all cores, and no more than SEEDS of each sort.
MINUTES ?= 10
SEEDS ?= 1000000
attack: .venv/ready-test  ## the broker, pairs and relays under deterministic simulation, new seeds with each commit, for MINUTES=10; what was run and found in build/attack.json
	@mkdir -p build
	@$(BIN)/python -m tests.simulation attack --minutes $(MINUTES) --seeds $(SEEDS) --seed $$(($$(git rev-list --count HEAD) * 1000000)) --json build/attack.json

promises: .venv/ready-test  ## the tests that documents name for their promises, run, and what came of each (minutes); ARGS as pytest's
	@$(BIN)/python -m docsite.promises $(ARGS)

pictures: .venv/ready-run  ## README's wheel, and the pictures of the records in bench/results, drawn anew; nothing is measured
	@$(BIN)/python -m bench.pictures

clean:  ## remove what the targets made
	rm -rf .venv out build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info src/*.egg-info
	rm -f src/waterclock/*/*.so src/waterclock/streaming/state/compiled/*.so src/waterclock/streaming/state/compiled/_engine.cpp
	rm -f src/waterclock/wheel/_objects.c src/waterclock/wheel/_arrays.c src/waterclock/timer/_adding.c src/waterclock/sinks/_rows.c
	rm -f src/waterclock/purgatory/delayed.c src/waterclock/purgatory/completions.c src/waterclock/purgatory/waiting.c src/waterclock/purgatory/_lock.c

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "waterclock needs Python 3.11 or newer, and none is on the PATH." \
	  "Install one (Debian: apt install python3 python3-venv), or say PYTHON=/path/to/python make ..." >&2; exit 1; }
	@echo "setting up .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "This Python cannot make virtual environments." \
	  "Install its venv module (Debian: apt install python3-venv) and run the same command again." >&2; exit 1; }

.venv/ready-run: .venv/bin/python $(BUILT)
	@echo "installing waterclock, Spark and the rest into .venv (1.2 GB in the end; a minute or two with a warm package cache)"
	@$(PIP) install --constraint constraints.txt pip
	@$(PIP) install --constraint constraints.txt --build-constraint constraints.txt --editable '.[spark,broker,demo]' || { \
	  echo "The packages could not be installed; the reason stands above. Without the Internet, point pip at a" \
	  "mirror (PIP_INDEX_URL) and run the same command again." >&2; exit 1; }
	@$(BIN)/python -W ignore -c "from waterclock.wheel import COMPILED; print('the timing wheel is compiled' if COMPILED \
	  else 'no C compiler: the plain Python wheel is used, same results, slower')"
	@touch $@

.venv/ready-servers: .venv/ready-run
	@echo "installing psycopg and pgpq, for PostgreSQL, into .venv (seconds)"
	@$(PIP) install --constraint constraints.txt --build-constraint constraints.txt --editable '.[spark,broker,demo,postgres]'
	@touch $@

.venv/ready-test: .venv/ready-run
	@echo "installing the test tools into .venv: pytest, Hypothesis, three Kafka clients, Delta Lake's, Iceberg's and databases'" \
	  "packages, a browser's driver (0.5 GB; half a minute with a warm package cache)"
	@$(PIP) install --constraint constraints.txt --group test
	@echo "compiling the tests, once and not in each of the processes that run them (ten seconds)"
	@$(BIN)/python -m pytest --collect-only --quiet >/dev/null 2>&1 || true  # what is wrong with them, the run says
	@touch $@

.venv/ready-wheel: .venv/ready-test
	@echo "installing build into .venv, which makes source distributions (seconds)"
	@$(PIP) install --constraint constraints.txt --group wheel
	@touch $@

.venv/ready-bench: .venv/ready-test
	@echo "installing uvloop, APScheduler and the other contenders into .venv (seconds)"
	@$(PIP) install --constraint constraints.txt --build-constraint constraints.txt --editable '.[spark,broker,demo,bench]'
	@touch $@

.venv/ready-docs: .venv/ready-run
	@echo "installing Zensical and mkdocstrings, which build the site, into .venv (seconds)"
	@$(PIP) install --constraint constraints.txt --group docs
	@touch $@

.venv/ready-check: .venv/ready-test
	@echo "installing ruff, mypy and what checks workflows and container files into .venv (seconds)"
	@$(PIP) install --constraint constraints.txt --group check
	@touch $@
