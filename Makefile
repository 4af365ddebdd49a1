# Every target makes .venv first (once). `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SHAPE  ?= 64,7168,2048
export TRITON_DEFAULT_FP_FUSION ?= 1
NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb))
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help size setup lab tune test test-all test-browser site types torture bench lint format check-notebooks notebooks gpu clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(VENV)/.ready: mxfp4lab/bootstrap.py pyproject.toml requirements.lock
	$(PYTHON) mxfp4lab/bootstrap.py $(VENV)
	@touch $@

$(VENV)/.aiter: $(VENV)/.ready
	$(PYTHON) mxfp4lab/bootstrap.py $(VENV) --aiter
	@touch $@

setup: $(VENV)/.ready $(if $(AITER),$(VENV)/.aiter) ## make .venv (AITER=1: with AMD's amd-aiter wheel, 40 MB)

# JupyterLab writes outputs and this machine's language_info into a notebook that it opens: git is told to look past them.
LANGUAGE := $(patsubst %,metadata.language_info.%,version codemirror_mode file_extension mimetype nbconvert_exporter pygments_lexer)
lab: setup ## open the workbook in JupyterLab, at 01
	@if git rev-parse --git-dir >/dev/null 2>&1; then \
		$(BIN)/nbstripout --install && git config filter.nbstripout.extrakeys "$(LANGUAGE)" \
		&& git config filter.nbstripout.required false; fi
	$(BIN)/jupyter lab --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/notebooks/01_shuffle.ipynb \
		$(if $(filter 0,$(shell id -u)),--allow-root)

tune: setup ## search one shape and export a verified submission: make tune SHAPE=64,7168,2048
	@$(BIN)/python -m mxfp4lab tune --notebook --shape "$(SHAPE)"

test: setup ## the suite that must pass on a laptop (under 12 minutes on 2 cores)
	$(PYTEST) -n 2 --dist worksteal

test-all: setup ## everything: notebooks in full, every variant on every shape (under 40 minutes on 2 cores)
	$(PYTEST) -n 2 --dist worksteal -m 'not torture and not browser'

test-browser: setup ## every notebook in JupyterLab in headless Chromium (BROWSER=1: apt-get installs it; ONLY="01 or 06")
	$(if $(BROWSER),apt-get update -q && apt-get install -y -q chromium chromium-driver)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements.lock selenium
	$(PYTEST) -m browser tests/test_browser.py -rs $(if $(ONLY),-k "$(ONLY)")

torture: setup ## a quarter of an hour of hostile input: kills, mutations, random bytes
	$(PYTEST) -m torture

bench: setup ## speed of the emulator, the compiler and the model on this machine
	$(BIN)/python tests/bench.py

lint: setup ## ruff over modules, tests and notebooks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy over the public API
	$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements.lock mypy
	$(BIN)/mypy

site: setup ## a static site from executed notebooks, README and docstrings in outputs/site/html (SMOKE=1: quick)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements.lock sphinx myst-nb furo
	$(BIN)/python docs/build.py $(if $(SMOKE),--smoke)

format: setup ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

size: ## rooms, lines and budgets of the house
	@$(PYTHON) tests/size.py

check-notebooks: setup ## committed notebooks hold no outputs
	$(BIN)/nbstripout --verify $(NOTEBOOKS)

notebooks: setup ## execute every notebook into outputs/
	@mkdir -p outputs
	for notebook in $(NOTEBOOKS); do $(BIN)/papermill $$notebook outputs/$$(basename $$notebook) --no-progress-bar || exit 1; done

gpu: setup ## on a GPU box: measure the whole set and refresh data/recorded/
	$(BIN)/python -m mxfp4lab gpu

clean: ## remove .venv and caches, never outputs/
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis *.egg-info
