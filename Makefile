# Everything that a developer or CI does. `make` alone lists the targets.
#
# Where no virtual environment is active, the targets make and use .venv in this folder.

PYTHON ?= python3
VENV := $(if $(VIRTUAL_ENV),$(VIRTUAL_ENV),.venv)
PY := "$(VENV)/bin/python"
JOBS ?= 2
PYTEST_ARGS ?=

# $(call environment,EXTRA): an environment with the package and its extra (none: the package
# alone), installed again only where pyproject.toml changed or it belongs to another folder.
environment = @set -e; \
	if [ ! -x "$(VENV)/bin/python" ]; then \
	  $(PYTHON) -m venv "$(VENV)" || { \
	    echo "make: $(PYTHON) cannot make a virtual environment:" \
	      "install Python 3.10 or newer with its venv module (Debian: python3-venv)" >&2; \
	    rm -rf "$(VENV)"; exit 2; }; \
	fi; \
	stamp="$(VENV)/.dumpscope-$(or $(1),alone)"; \
	if [ ! -e "$$stamp" ] || [ pyproject.toml -nt "$$stamp" ] || [ setup.py -nt "$$stamp" ] \
	  || [ "$$(cat "$$stamp")" != "$$PWD" ]; then \
	  echo "installing dumpscope$(if $(1), with what '$(1)' needs) into $(VENV)"; \
	  $(PY) -m pip install --quiet --disable-pip-version-check -e ".$(if $(1),[$(1)])"; \
	  pwd > "$$stamp"; \
	fi

.DEFAULT_GOAL := help
.PHONY: help install demo format lint type test test-lowest coverage docs docs-check pictures fixtures \
	fixtures-check bench soak build smoke check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' Makefile

install: ## install dumpscope and all development tools into the environment
	$(call environment,dev)

demo: ## scan the bundled sample dump, end with the ranked table and a workbook
	$(call environment,)
	@"$(VENV)/bin/dumpscope" scan fixtures/sample_dump; \
	status=$$?; [ $$status -eq 1 ] || exit $$status; \
	echo "(exit status 1 is what scan answers when it found offenders)"
	@"$(VENV)/bin/dumpscope" report --xlsx --force

format: ## format the code and sort the imports
	$(call environment,dev)
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

lint: ## check style and formatting
	$(call environment,dev)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

type: ## check the types, strictly
	$(call environment,dev)
	@$(PY) -m mypy

test: ## run the tests
	$(call environment,test)
	@$(PY) -m pytest -n $(JOBS) $(PYTEST_ARGS)

coverage: ## run the tests and require the coverage floor
	$(call environment,test)
	@rm -f .coverage .coverage.*
	@$(PY) -m pytest -n $(JOBS) --cov --cov-report=term $(PYTEST_ARGS)

test-lowest: ## run the tests with the oldest dependencies that are supported
	@[ -x .venv-lowest/bin/python ] || $(PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check \
	  -c .ci/lowest.txt -e ".[test]"
	@.venv-lowest/bin/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

docs: ## write the generated parts of docs/ anew and build the site into site/
	$(call environment,docs)
	@$(PY) docs/generate.py
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

docs-check: ## check that links lead somewhere and that the generated parts are current
	$(call environment,test)
	@$(PY) docs/generate.py --check

pictures: ## draw the pictures of the READMEs anew
	$(call environment,test)
	@$(PY) docs/pictures.py

fixtures: ## write the synthetic fixtures anew
	$(call environment,test)
	@$(PY) -m fixtures.generate

fixtures-check: ## check that generating the fixtures again gives no difference
	$(call environment,test)
	@$(PY) -m fixtures.generate --check

bench: ## measure what docs/benchmarks.md promises (BENCH_ARGS="--quick" for a short run)
	$(call environment,test)
	@$(PY) -m bench $(BENCH_ARGS)

soak: ## play kills, full disks, hostile trees and damaged files for hours (SOAK_ARGS="--only kill")
	$(call environment,test)
	@$(PY) -m bench.soak $(SOAK_ARGS)

build: ## build the wheel and the source distribution into dist/
	$(call environment,dev)
	@rm -rf dist
	@$(PY) -m build --outdir dist . > dist.log 2>&1 || { cat dist.log; rm -f dist.log; exit 1; }
	@rm -f dist.log; ls dist

smoke: build ## install the wheel into a new environment and run the README's first command
	@sh .ci/smoke "$(PYTHON)"

check: lint type docs-check docs fixtures-check smoke coverage ## all that CI requires

clean: ## remove what the other targets made
	rm -rf .venv .venv-lowest build dist site htmlcov .coverage .coverage.* *.egg-info \
	  .mypy_cache .pytest_cache .ruff_cache .hypothesis
