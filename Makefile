# make            lists the targets
# make demo       installs everything and runs the main job on a real broker
# make test       installs everything, then runs lint, types and the tests

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := assignors coordinator_client/fetch coordinator_client/offsets fastpath network producer
FREE_THREADED ?= python3.14t
THREAD_TESTS := tests/*/test*threads*.py tests/network/test_lease.py
WHEEL_TOOLS := out/wheel-tools/.ready
ACTIONLINT := out/wheel-tools/bin/actionlint
SITE_TOOLS := out/site-tools/.ready
PIP := $(BIN)/pip install --disable-pip-version-check --progress-bar off -c constraints.txt
PROGRESS := | sed -un -E 's/^(Collecting [^ ]+).*/   \1/p; s/^ +Downloading ([^ /]+\.whl).*\((.* MB)\)/   downloading \1, \2/p; s/^Building wheels.*/   building/p; s/^Successfully installed.*/   installed/p'
BROKER_VERSIONS := 3.7.2 3.9.1 4.3.1 4.4.0
# ONLY=@FILE: of a target's tests, those that FILE lists.
# Tests mostly wait for brokers. With five workers on two slow processors, brokers and Spark miss their own time limits. Tests of one server run on one worker, the slowest first.
SIDE_BY_SIDE := -n 4 --dist loadgroup --no-loadscope-reorder
# Tests start some hundred Pythons, and each would compile its imports.
unexport PYTHONDONTWRITEBYTECODE
LOWEST ?= tests/common tests/protocol tests/fastpath tests/assignors tests/network tests/coordinator_client tests/producer \
  tests/transform tests/share_consumer tests/workers tests/admin tests/consistent_region tests/spark tests/testing \
  tests/conformance tests/cli
SPARK_VERSIONS ?= 4.0.0 4.1.1 4.2.1 4.3.0

.PHONY: help dev demo test test-all test-hours test-third-0 test-third-1 test-third-2 test-full test-fast test-lowest test-newest test-interrupts test-brokers teeth conformance reliability gallery audit lint types types-systems bench fuzz sim sim-producer soak-producer sim-share soak-share soak-region soak soak-groups mutants line-mutants docs accessibility clean test-spark-jvm soak-spark bench-spark wheels sdist sbom release release-check lint-release test-free-threaded test-spark-versions test-spark-group test-security test-kerberos test-cluster test-width mutation
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

dev: $(READY)  ## make .venv with an editable, compiled kohort and all tools

$(READY): setup.py pyproject.toml constraints.txt $(foreach each,$(COMPILED),$(wildcard $(each)/*.pyx $(each)/*.pxd))
	@$(PYTHON) .ci/preflight.py
	@test -x $(BIN)/python || { echo "== creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "== installing build tools"
	@$(PIP) "setuptools>=77" "Cython>=3.1" wheel $(PROGRESS)
	@echo "== installing kohort (editable, compiled) and its tools; the first run downloads about 600 MB"
	@$(PIP) --no-build-isolation -e ".[dev]" $(PROGRESS)
	@echo "== storing bytecode in PySpark's archives"
	@$(BIN)/python -m kohort.spark.precompile > /dev/null
	@touch $@

demo: dev  ## the main job: broker, group of three, a kill, Spark, equal totals, a report
	@$(BIN)/kohort demo

test: dev lint types  ## lint, types and the tests that a change must pass
	@$(BIN)/python -m pytest $(or $(ONLY),$(SIDE_BY_SIDE))
	@$(BIN)/python -m kohort.testing.simulation --seeds 300 --resume out/sim.jsonl

test-all: test test-third-0 test-third-1 test-third-2  ## make test, and the tests that it leaves out: an hour and a half

# The thirds of the tests that `make test` leaves out. `.ci/run` runs one. Each takes up to half an hour on two cores.
THIRD_0 := test-full test-lowest sim mutants
THIRD_1 := test-security
THIRD_2 := teeth test-spark-group test-cluster fuzz
test-third-0: $(THIRD_0)
test-third-1: $(THIRD_1)
test-third-2: $(THIRD_2)
third-%:
	@echo $(THIRD_$*)

test-hours: test-interrupts test-width test-kerberos test-brokers  ## tests that take hours
	@$(MAKE) test-cluster KILLS=60

test-full: dev  ## tests and sizes that make test leaves out
	@$(BIN)/python -m pytest --full $(or $(ONLY),-m full --deselect tests/conformance/test_teeth.py $(SIDE_BY_SIDE))

test-interrupts: dev  ## raise at every point where a signal handler can run, then a minute of random alarms: an hour
	@KOHORT_INTERRUPTS=1 KOHORT_ALARM_S=60 $(BIN)/python -m pytest -o timeout=0 tests/coordinator_client/test_interrupts.py \
	  tests/coordinator_client/test_interrupts_of_close.py \
	  tests/coordinator_client/test_alarms.py tests/producer/test_producer_interrupts.py \
	  tests/producer/test_async_producer_interrupts.py tests/admin/test_admin_interrupts.py \
	  tests/share_consumer/test_share_interrupts.py

test-width: dev  ## 10,000 partitions, no heartbeat later than a second: minutes, on a quiet machine
	@KOHORT_WIDTH=1 $(BIN)/python -m pytest -n 0 tests/coordinator_client/test_wide_group.py

test-fast: dev  ## tests without a broker
	@$(BIN)/python -m pytest -m "not broker"

test-lowest:  ## tests without a broker, with every dependency of core and extras at its lower bound, in out/lowest
	@test -x out/lowest/bin/python || $(PYTHON) -m venv out/lowest
	@out/lowest/bin/pip install -q --disable-pip-version-check packaging "setuptools>=77" "Cython>=3.1"
	@out/lowest/bin/python setup.py -q egg_info -e out/lowest && \
	  out/lowest/bin/python .ci/lowest.py out/lowest/kohort.egg-info/PKG-INFO > out/lowest/pins.txt
	@grep -v ^gssapi out/lowest/pins.txt > out/lowest/others.txt
	@out/lowest/bin/pip install -q --disable-pip-version-check -r out/lowest/others.txt
	@out/lowest/bin/pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
	@out/lowest/bin/python -m tests.network.auth.kerberos_library $$(grep ^gssapi out/lowest/pins.txt)
	@out/lowest/bin/python -m pytest $(or $(ONLY),-m "not broker" $(LOWEST))

test-newest:  ## all tests with the newest release of everything, the broker too, in out/newest
	@test -x out/newest/bin/python || $(PYTHON) -m venv out/newest
	@out/newest/bin/pip install -q --disable-pip-version-check --upgrade setuptools Cython
	@out/newest/bin/pip install -q --disable-pip-version-check --upgrade --upgrade-strategy eager --no-build-isolation -e ".[dev]"
	@version=$$(java -jar out/newest/lib/python3.*/site-packages/pyspark/jars/ivy-*.jar -cache out/newest/ivy -types pom \
	  -notransitive -dependency org.apache.kafka kafka_2.13 latest.release \
	  | sed -n 's/.*\[\(.*\)\] org.apache.kafka#kafka_2.13;latest.release.*/\1/p'); \
	  echo "== Apache Kafka $${version:?not found}"; \
	  KOHORT_UNPINNED_JARS=1 KOHORT_BROKER_VERSION=$$version out/newest/bin/python -m pytest $(SIDE_BY_SIDE)

test-free-threaded:  ## run threads that share objects of kohort without a GIL, in out/free-threaded: FREE_THREADED=python3.14t
	@$(FREE_THREADED) -c 'import sys; print("==", sys.version); sys.exit(sys._is_gil_enabled() and "this Python has a GIL")'
	@test -x out/free-threaded/bin/python || $(FREE_THREADED) -m venv out/free-threaded
	@out/free-threaded/bin/pip install -q --disable-pip-version-check --only-binary :all: hypothesis pytest pytest-timeout \
	  pytest-xdist construct crc32c "scramp<2"
	@out/free-threaded/bin/pip install -q --disable-pip-version-check --only-binary :all: cramjam || \
	  echo "== no cramjam for this Python: records are not compressed"
	@out/free-threaded/bin/pip install -q --disable-pip-version-check --no-deps .
	@PYTHON_GIL=0 out/free-threaded/bin/python -m pytest -n 0 $(THREAD_TESTS)

sdist: $(WHEEL_TOOLS)  ## make the sdist in out/wheels
	@out/wheel-tools/bin/python -m build --sdist --outdir out/wheels .

wheels: $(WHEEL_TOOLS)  ## make, repair, check and test a wheel for every CPython here, in out/wheels: PYTHONS="python3.12 ..."
	@out/wheel-tools/bin/python .ci/wheels.py out/wheels $(PYTHONS)

sbom: $(WHEEL_TOOLS)  ## list what an installed wheel of out/wheels brings, in CycloneDX's form, in out/kohort.cdx.json
	@$(PYTHON) -m venv --clear --without-pip out/sbom
	@out/wheel-tools/bin/pip --python out/sbom/bin/python install -q --disable-pip-version-check --find-links out/wheels \
	  --only-binary :all: --no-index --no-deps kohort
	@out/wheel-tools/bin/pip --python out/sbom/bin/python install -q --disable-pip-version-check kohort
	@out/wheel-tools/bin/cyclonedx-py environment --pyproject pyproject.toml --output-file out/kohort.cdx.json out/sbom/bin/python

release:  ## set the version, cut CHANGELOG, commit and tag: VERSION=0.2.0
	@$(PYTHON) .ci/release.py cut $(VERSION)

release-check: lint-release wheels sbom  ## every step of a release that needs no account: PYTHONS="python3.12 ..."
	@$(PYTHON) .ci/release.py rehearse out/rehearsal
	@out/wheel-tools/bin/python -m build --sdist --outdir out/rehearsal/dist out/rehearsal
	@out/wheel-tools/bin/python -m twine check --strict out/rehearsal/dist/*
	@out/wheel-tools/bin/python .ci/action.py out/wheels

lint-release: $(ACTIONLINT)  ## check the workflows, the action and the Dockerfile
	@PATH="$$PWD/out/wheel-tools/bin:$$PATH" actionlint
	@out/wheel-tools/bin/hadolint Dockerfile

$(ACTIONLINT): $(WHEEL_TOOLS)
	@GOBIN="$$PWD/out/wheel-tools/bin" go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

$(WHEEL_TOOLS): .ci/wheel-tools.txt
	@test -x out/wheel-tools/bin/python || $(PYTHON) -m venv out/wheel-tools
	@out/wheel-tools/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

test-brokers: dev  ## broker tests on each of BROKER_VERSIONS
	@for version in $(BROKER_VERSIONS); do echo "== Apache Kafka $$version"; \
	  KOHORT_BROKER_VERSION=$$version $(BIN)/python -m pytest -m broker || exit 1; done

test-spark-jvm: dev  ## compare with Spark's own connector, in a second PySpark (450 MB the first time)
	@$(BIN)/python -m pytest tests/spark_jvm/same_reads.py tests/spark_jvm/checkpoint_moves.py

test-spark-versions: dev  ## Spark tests on each of SPARK_VERSIONS
	@for version in $(SPARK_VERSIONS); do echo "== PySpark $$version"; \
	  test -d out/pyspark-$$version/pyspark || $(BIN)/pip install -q --disable-pip-version-check \
	    --target out/pyspark-$$version pyspark==$$version || exit 1; \
	  PYTHONPATH=out/pyspark-$$version $(BIN)/python -m pytest tests/spark || exit 1; done

test-spark-group: dev  ## two Spark applications and a consumer in one group, with joins and a kill: some 2 minutes
	@$(BIN)/python -m pytest $(or $(ONLY),tests/spark/apps_of_a_group.py)

test-cluster: dev  ## a standalone Spark cluster with kohort from an archive, Spark Connect, kills under jobs: KILLS=8 SEED=1
	@$(BIN)/python -m pytest $(or $(ONLY),tests/spark/on_a_cluster.py tests/spark/connect_on_a_cluster.py)
	@$(BIN)/python -m tests.spark.cluster_kills --kills $(or $(KILLS),8) --seed $(or $(SEED),1)

test-security: dev  ## the clients' tests by TLS, and by TLS with SCRAM: some 25 minutes
	@failed=0; for kind in tls scram; do echo "== $$kind"; \
	  $(BIN)/python -m pytest -p tests.secured --secured $$kind \
	    $(or $(ONLY),-m broker tests/network tests/coordinator_client tests/admin tests/producer) || failed=1; done; \
	  exit $$failed

test-kerberos: dev  ## Kerberos logins on Debian's KDC, and hostile KDCs; the first run builds gssapi: some 3 minutes
	@$(BIN)/python -m tests.network.auth.kerberos_library
	@$(BIN)/python -m pytest tests/network/auth/test_gssapi.py tests/network/auth/test_gssapi_on_broker.py \
	  tests/network/auth/test_hostile_kdc.py

lint: dev  ## run ruff and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@PYTHONPATH=src $(BIN)/lint-imports

teeth: dev  ## deliberate faults of a broker, which the conformance checks must catch
	@$(BIN)/python -m pytest --full $(or $(ONLY),tests/conformance/test_teeth.py)

conformance: dev  ## check every broker of docs/conformance again: some ten minutes
	@$(BIN)/python docs/conformance/judge.py

reliability: dev  ## make docs/reliability.md from the kept runs
	@$(BIN)/python -m benchmarks.reliability page

gallery: dev  ## run published bugs of other clients on kohort and on these; writes docs/gallery.md
	@$(BIN)/python -m tests.gallery.show

audit: dev  ## check every pinned package for advisories
	@$(BIN)/pip-audit -r constraints.txt --no-deps --disable-pip --strict --progress-spinner off

types: dev  ## run mypy, strict
	@$(BIN)/mypy
	@$(BIN)/mypy tests benchmarks examples

types-systems: dev  ## mypy as on Windows and macOS
	@$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32
	@$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin

bench: dev  ## kohort and other clients in one run; writes benchmarks/results and docs/benchmarks.md
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.page

bench-spark: dev  ## Spark with kohort and with Spark's own connector
	@$(BIN)/python -m benchmarks spark spark_streams
	@$(BIN)/python -m benchmarks.page

fuzz: dev  ## fuzz the parsers under sanitizers: INPUTS=1000000 SEED=1
	@$(BIN)/python -m tests.sanitized tests.protocol.fuzz_codec --inputs $(or $(INPUTS),1000000) --seed $(or $(SEED),1)
	@$(BIN)/python -m tests.sanitized tests.fastpath.fuzz_records --inputs $(or $(INPUTS),1000000) --seed $(or $(SEED),1)
	@$(BIN)/python -m tests.sanitized tests.fastpath.changing_rows

sim: dev  ## histories of a consistent region in a seeded world, resumable: SEEDS=2000 FIRST=1
	@$(BIN)/python -m kohort.testing.simulation --first $(or $(FIRST),1) --seeds $(or $(SEEDS),2000) --resume out/sim.jsonl

sim-producer: dev  ## histories of a producer with splits, callbacks and both versions of transactions, resumable: SEEDS=500 FIRST=0
	@nice -n 10 $(BIN)/python -m tests.producer.histories --first $(or $(FIRST),0) --seeds $(or $(SEEDS),500) \
	  --resume out/producer-histories.jsonl

soak-producer: dev  ## kills of brokers under producers, with another client as the judge, resumable: KILLS=300 SEED=1
	@$(BIN)/python -m tests.soak_producer --kills $(or $(KILLS),300) --seed $(or $(SEED),1)

sim-share: dev  ## histories of share members in a seeded world, resumable: SEEDS=100000 FIRST=0
	@nice -n 10 $(BIN)/python -m tests.share_consumer.share_histories --first $(or $(FIRST),0) --seeds $(or $(SEEDS),100000)

soak-share: dev  ## share groups of kohort, Java and librdkafka with kills and restarts, resumable: SEEDS="1 2 3" RECORDS=200000
	@nice -n 10 $(BIN)/python -m tests.soak_share --seeds $(or $(SEEDS),1 2 3) --records $(or $(RECORDS),200000)

soak: dev  ## everything at once on three failing brokers, with growth; page in out/soak-hours: HOURS=1 SEED=1
	@$(BIN)/python -m tests.soak_hours --hours $(or $(HOURS),1) --seed $(or $(SEED),1)

soak-groups: dev  ## random mixed groups on three brokers with kills and restarts, resumable: SEED=1 RUNS=100 PROTOCOL=classic
	@nice -n 10 $(BIN)/python -m tests.soak --seed $(or $(SEED),1) --runs $(or $(RUNS),100) \
	  --protocol $(or $(PROTOCOL),classic)

soak-spark: dev  ## random kills of a streaming job into Parquet and PostgreSQL: KILLS=30 SEED=1
	@$(BIN)/python -m tests.soak_spark.soak --kills $(or $(KILLS),30) --seed $(or $(SEED),1)

soak-region: dev  ## a region under kill -9 and SIGSTOP: SEED=1 KILLS=100 STORE=sqlite RECORDS=1000000 MOVING=reset
	@$(BIN)/python -m tests.soak_region.soak --seed $(or $(SEED),1) --kills $(or $(KILLS),100) \
	  --store $(or $(STORE),sqlite) --records $(or $(RECORDS),1000000) --moving $(or $(MOVING),reset)

mutants: dev  ## deliberate faults in a region, which the seeded world must catch
	@$(BIN)/python -m tests.consistent_region.region_mutants

line-mutants: dev  ## faults of one line in a region, for the seeded world and tests without a broker, resumable: SEEDS=100
	@nice -n 10 $(BIN)/python -m tests.consistent_region.line_mutants --seeds $(or $(SEEDS),100)

mutation: dev  ## random small faults in tests/mutation/scope.py, which tests without a broker must find: SEED=1 COUNT=300
	@nice -n 10 $(BIN)/python -m tests.mutation --seed $(or $(SEED),1) --count $(or $(COUNT),300) --jobs $(or $(JOBS),1)

docs: dev  ## make the pages that come from tables of the code, and the site of all pages in out/site; strict
	@$(BIN)/python -m docs.make
	@if command -v npm > /dev/null; then $(MAKE) -s $(SITE_TOOLS); cp out/site-tools/node_modules/mermaid/dist/mermaid.min.js docs/javascripts; \
	  else echo "== no npm: drawings are loaded from unpkg.com"; fi
	@$(BIN)/zensical build --strict

accessibility: docs  ## check the built site for serious accessibility errors, in CHROME; pictures in out/screenshots
	@node .ci/site/accessibility.mjs

$(SITE_TOOLS): .ci/site/package.json
	@mkdir -p out/site-tools && cp $< out/site-tools
	@npm install --prefix out/site-tools --no-package-lock --no-audit --no-fund --silent
	@touch $@

clean:  ## remove built files
	rm -rf build out $(VENV) *.egg-info src/*.egg-info $(foreach each,$(COMPILED),$(each)/*.c $(each)/*.so)
