# The menu of the course. `make lab` to learn, `make test` to see that everything works.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed
# Jupyter refuses to run as root unless told; containers often run as root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
NBVAL := $(BIN)/python -m pytest --nbval-current-env --nbval-cell-timeout=120 -p no:cacheprovider

.PHONY: help lab test exercises refresh bench bench-gpu

help:  ## show this menu
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

lab: $(STAMP)  ## install what is missing and open the course in JupyterLab
	$(BIN)/jupyter lab $(AS_ROOT) --config=course_utils/jupyter_config.py

test: $(STAMP) .venv/browser  ## check everything: style, code, notebooks, exercises, browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest
	$(NBVAL) --nbval notebooks solutions
	COURSE_STRICT=1 $(NBVAL) --nbval-lax exercises

exercises: $(STAMP)  ## for authors: make exercises/ from solutions/
	$(BIN)/python -m course_utils.authoring exercises

refresh: $(STAMP)  ## for authors: run notebooks/ and solutions/ and store their outputs
	$(BIN)/python -m course_utils.authoring refresh

bench: $(STAMP) .venv/browser  ## measure explorers in a real browser, and tiled attention
	$(BIN)/python benchmarks/explorer_latency.py
	$(BIN)/python benchmarks/tiled_attention.py

bench-gpu: $(STAMP)  ## measure attention on an NVIDIA GPU, kernel by kernel
	$(BIN)/python benchmarks/gpu_attention.py
	$(BIN)/python benchmarks/kernel_ladder.py

$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "The course needs Python 3.11 or newer. Name one: make lab PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.txt
	@# Git then compares and merges notebooks cell by cell, so that updates keep answers, and takes
	@# the update's outputs where both sides ran a cell. It runs these drivers from here, also in a
	@# shell that knows nothing of .venv.
	@if git rev-parse --git-dir >/dev/null 2>&1; then \
		git config diff.jupyternotebook.command "$(BIN)/git-nbdiffdriver diff"; \
		git config merge.jupyternotebook.driver "$(BIN)/git-nbmergedriver merge --output-strategy use-remote %O %A %B %L %P"; \
		git config merge.jupyternotebook.name "merge notebooks cell by cell"; fi
	@touch $@

# The browser tests take a Chromium that is there, or Playwright's own; without either they are
# skipped and say so, except under CI, where they fail.
.venv/browser: $(STAMP)
	@command -v chromium chromium-browser google-chrome >/dev/null || \
		$(BIN)/playwright install chromium || \
		echo "No browser could be found or installed: the browser tests will be skipped."
	@touch $@
