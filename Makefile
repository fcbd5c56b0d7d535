# `make lab` opens the course, `make test` tests everything, and `make help` lists all commands.
PYTHON ?= python3
RANKS ?= 2
BIN := .venv/bin

.PHONY: help lab model check test exercises refresh bench bench-ranks bench-gpu site site-serve badges

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

lab: .venv/learner  ## install what is missing and open the course in JupyterLab
	$(BIN)/attention-course start .

model: .venv/learner  ## download the language model of lessons 10, 10b and 12 (93 MB), unless it is there
	$(BIN)/attention-course model

check: .venv/authors model  ## run the style checks and fast tests; K=split_heads selects tests by name
	$(BIN)/python -m tools.run_all check $(K)

test: .venv/authors .venv/browser model  ## run everything: style, tests, browser, lessons, exercises
	$(BIN)/python -m tools.run_all

exercises: .venv/learner  ## for authors: generate exercises/ from solutions/
	$(BIN)/python -m tools.notebooks exercises

refresh: .venv/learner  ## for authors: run notebooks/ and solutions/, and store their outputs
	$(BIN)/python -m tools.notebooks refresh

site: .venv/authors  ## build the website in build/site; links to code and Colab need REPOSITORY=owner/name
	$(BIN)/python site/build.py $(if $(REPOSITORY),--repository $(REPOSITORY))

site-serve:  ## show the website from build/site at http://localhost:8000
	$(PYTHON) -m http.server --bind 127.0.0.1 --directory build/site

badges:  ## add badges for REPOSITORY=owner/name to README; without it, remove them
	$(PYTHON) site/addresses.py $(if $(REPOSITORY),--repository $(REPOSITORY))

bench: .venv/learner  ## compare the speed of tiled and naive attention
	$(BIN)/python benchmarks/tiled_attention.py

bench-ranks: .venv/learner  ## measure attention sharded over RANKS=2 processes on the CPU
	$(BIN)/torchrun --standalone --nproc-per-node $(RANKS) benchmarks/parallel_attention.py

bench-gpu:  ## measure attention and its kernels on a GPU, with PYTHON=python3 or the environment
	$(or $(wildcard $(BIN)/python),$(PYTHON)) benchmarks/gpu.py

# A virtual environment stores its path in many files, so it is recreated after a move.
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

# The browser tests use an installed Chromium, or Playwright's. Without either they are skipped, with
# a message. In CI they fail.
.venv/browser: .venv/authors
	@command -v chromium >/dev/null || \
		command -v chromium-browser >/dev/null || \
		command -v google-chrome >/dev/null || \
		$(BIN)/playwright install chromium || \
		echo "No browser was found, and none could be installed: the browser tests will be skipped."
	@touch $@
