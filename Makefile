# The menu of the course. `make lab` to learn, `make test` to see that everything works.
PYTHON ?= python3
RANKS ?= 2
BIN := .venv/bin
# Jupyter refuses to run as root unless told; containers often run as root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.PHONY: help lab model check test exercises refresh bench bench-ranks bench-gpu site site-serve badges

help:  ## show this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

lab: .venv/learner  ## install what is missing and open the course in JupyterLab
	$(BIN)/jupyter lab . $(AS_ROOT)

model: .venv/learner  ## fetch the language model of lesson 10, 93 MB, unless it is there
	$(BIN)/python -m course_utils.model_file

check: .venv/authors  ## style and the fast tests, two minutes; with K=split_heads only tests whose name matches
	$(BIN)/python -m tools.run_all check $(K)

test: .venv/authors .venv/browser model  ## everything: style, tests, browser, lessons, exercises
	$(BIN)/python -m tools.run_all

exercises: .venv/learner  ## for authors: make exercises/ from solutions/
	$(BIN)/python -m tools.notebooks exercises

refresh: .venv/learner  ## for authors: run notebooks/ and solutions/ and store their outputs
	$(BIN)/python -m tools.notebooks refresh

site: .venv/authors  ## make the website in build/site; its links to code and Colab need REPOSITORY=owner/name
	$(BIN)/python site/build.py $(if $(REPOSITORY),--repository $(REPOSITORY))

site-serve:  ## show the website that make site made, at http://localhost:8000
	$(PYTHON) -m http.server --bind 127.0.0.1 --directory build/site

badges:  ## add badges for REPOSITORY=owner/name to README
	$(PYTHON) site/addresses.py $(if $(REPOSITORY),--repository $(REPOSITORY))

bench: .venv/learner  ## measure tiled attention beside naive
	$(BIN)/python benchmarks/tiled_attention.py

bench-ranks: .venv/learner  ## measure attention sharded over RANKS=2 processes on the CPU
	$(BIN)/torchrun --standalone --nproc-per-node $(RANKS) benchmarks/parallel_attention.py

bench-gpu: .venv/learner  ## measure attention on a GPU, kernel by kernel
	$(BIN)/python benchmarks/gpu_attention.py
	$(BIN)/python benchmarks/kernel_ladder.py

# A virtual environment holds its own path in many files, so a moved one is recreated.
ifeq (,$(findstring $(CURDIR)/.venv,$(shell cat .venv/pyvenv.cfg 2>/dev/null)))
.PHONY: .venv/learner
endif
.venv/learner: install.py requirements.txt pyproject.toml course_utils/jupyter_config.py \
		course_utils/jupyterlab_settings.json
	@$(PYTHON) install.py $(if $(CPU),--cpu) $(if $(GPU),--gpu)
	@touch $@

.venv/authors: .venv/learner requirements-authors.txt
	@$(PYTHON) install.py --authors $(if $(CPU),--cpu) $(if $(GPU),--gpu)
	@touch $@

# The browser tests use the Chromium that is installed, or Playwright's own. Without either they are
# skipped and say so; under CI they fail.
.venv/browser: .venv/authors
	@command -v chromium >/dev/null || \
		command -v chromium-browser >/dev/null || \
		command -v google-chrome >/dev/null || \
		$(BIN)/playwright install chromium || \
		echo "No browser was found, and none could be installed: the browser tests will be skipped."
	@touch $@
