# make venv   the environment .venv (CPython 3.10, torch 1.13.1, k2 1.23.4)
# make quick  the tests for the hand at work: all but those that are slow
# make test   all tests;  make test311  those that need no k2 on CPython 3.11;  make lint  ruff and mypy
# make audit  known vulnerabilities of the pinned packages (pip-audit; needs the network, no part of the tests)
# make docs   the documentation as a site, build/site/index.html
# make demo   from speech to a WER table; fewer utterances: make demo DEMO_UTTS=40; also DEMO_RECOGNISER=pocketsphinx or moonshine
# make clean  removes the demo's work and caches, not the environments

VENV := .venv
PYTHON := $(VENV)/bin/python
VENV311 := .venv311
PYTHON311 := python3.11
DEMO_UTTS := 220
DEMO_RECOGNISER := s4former

# Where it is set, each process of a new environment would compile all that it imports: torch alone takes seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv venv311 quick test test311 lint audit docs demo clean

help:
	@grep '^# make' Makefile | cut -c3-

venv: $(VENV)/.ready

$(VENV)/.ready: tools/requirements-py310.txt tools/requirements-k2.txt tools/make_venv.sh setup.py
	@python=$$(sh tools/find_python.sh) && \
	  sh tools/make_venv.sh $(VENV) tools/requirements-py310.txt "$$python" tools/requirements-k2.txt

venv311: $(VENV311)/.ready

$(VENV311)/.ready: tools/requirements-py311.txt tools/make_venv.sh setup.py
	@sh tools/make_venv.sh $(VENV311) tools/requirements-py311.txt $(PYTHON311)

quick: venv
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 2 -m "not slow"  # two processes of two threads each would wait for one another

test: venv
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 2

test311: venv311
	OMP_NUM_THREADS=1 $(VENV311)/bin/python -m pytest -n 2 tests/lm_zoo tests/rescore tests/asr tests/docs tests/test_lazy_imports.py \
	  --ignore tests/docs/test_runs.py --ignore tests/docs/test_site.py --ignore tests/rescore/cli/test_report_page.py

lint: venv
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

audit:
	@sh tools/audit.sh

docs: venv
	$(PYTHON) tools/build_docs.py

demo: venv
	$(PYTHON) demo/run.py --utterances $(DEMO_UTTS) --recogniser $(DEMO_RECOGNISER)

clean:
	rm -rf demo/work demo/results.json build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
