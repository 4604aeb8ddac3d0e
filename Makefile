# What people do every day.  Needs make, git and any Python from 3.11 on; everything else goes
# into .venv.  PYTHON=/path/to/python chooses the interpreter.

VENV := .venv
BIN := $(VENV)/bin

# The first interpreter that runs and is new enough (a launcher may exist without its Python).
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3 python,\
	$(shell $(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))

DEMO := build/demo/repvgg_a0
BUDGET := 60

# What is imported is kept compiled: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

MYPY := ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -n auto

.PHONY: demo test lint types format bench bench-variants bench-busy bench-normwise bench-twice over-time forms learn-cost bench-dynamic bench-cuda figures qdq isolated rules verify yardsticks recall learning enumeration regeneration mutation suites many spellings miniatures compare scaling large quantized decoders deployed site clean

demo: $(DEMO).onnx
	$(BIN)/xflow optimize $(DEMO).onnx $(DEMO).fast.onnx --budget $(BUDGET)

# One file is the work of one process, so that what a file's tests share is made once.
test: lint types
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# generator/, verifier/ and rules/ are installed as xflow.generator and so on; the type checker
# does not resolve that mapping, so it is shown a tree of links in which they are where they are
# imported from.
types: $(VENV)/dev
	rm -rf build/types
	mkdir -p build/types/xflow
	cd build/types/xflow && ln -s ../../../xflow/* ../../../generator ../../../verifier ../../../rules .
	cd build/types && $(MYPY) -p xflow
	cd build/types && $(MYPY) ../../benchmarks ../../tests

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# xflow and the other tools that there are, on every model, in one table.
bench: $(VENV)/peers
	$(BIN)/python benchmarks/run.py --budget $(BUDGET)

# xflow by default, with the runtime's own operators, and with the model's opset, beside its peers.
bench-variants: $(VENV)/peers
	$(BIN)/python benchmarks/run.py --budget $(BUDGET) --variants

# xflow on an idle machine, and while another process keeps one core busy.
bench-busy: $(VENV)/installed
	$(BIN)/python benchmarks/run.py --budget $(BUDGET) --busy

# xflow by default, and where errors of rounding may count against the largest elements.
bench-normwise: $(VENV)/installed
	$(BIN)/python benchmarks/run.py --budget $(BUDGET) --normwise

# Each model a second time from an empty store: for how many the results are as fast.
bench-twice: $(VENV)/installed
	$(BIN)/python benchmarks/run.py --budget $(BUDGET) --twice

# xflow with several budgets: how much is gained after how many seconds, and a chart.
over-time: $(VENV)/peers
	$(BIN)/python benchmarks/over_time.py

# The data of the learned cost, and its training, which writes what the package ships; what was
# timed before stays.
forms: $(VENV)/installed
	$(call install,'.[exports]')
	$(BIN)/python benchmarks/forms.py
	$(BIN)/python benchmarks/forms.py --pack

learn-cost: $(VENV)/installed
	$(call install,'.[learn]')
	$(BIN)/python benchmarks/learn_cost.py --out benchmarks/results \
		--write xflow/cost/learned/correction.npz

# Exports with dynamic batch and length, at the sizes of the same models above.
bench-dynamic: $(VENV)/peers
	$(BIN)/python benchmarks/run.py --budget $(BUDGET) --dynamic

# What the committed run of the benchmark says, put into the README; `figures.py --generation` has
# the report of `xflow rules generate` put there as well.
figures: $(VENV)/installed
	$(BIN)/python benchmarks/figures.py

# What the runtime simplifies around codes of quantized numbers: proved, or refuted by a case that runs.
qdq: $(VENV)/installed
	$(BIN)/python benchmarks/qdq.py

# Rewrites that the runtime misses, each in a graph of its own, against the form made by hand.
isolated: $(VENV)/installed
	$(BIN)/python benchmarks/run_isolated.py

# How the time of the search grows with nodes, with distinct blocks and with rules, and a chart.
scaling: $(VENV)/peers
	$(BIN)/python benchmarks/scaling.py

rules: $(VENV)/installed
	$(BIN)/xflow rules generate --out rules

verify: $(VENV)/installed
	$(BIN)/xflow rules verify rules

# What the verifier says of TASO's substitutions: verdict, milliseconds, condition.
yardsticks: $(VENV)/installed
	$(BIN)/python benchmarks/taso.py

# Which of TASO's sound substitutions are in the database or follow from it, and by which rules.
recall: $(VENV)/installed
	$(BIN)/python benchmarks/recall.py

# Rules that the benchmark's models use, deleted at random: how many are learned from these models.
learning: $(VENV)/installed
	$(BIN)/python benchmarks/learning.py

# Graphs, classes, seconds and memory of enumeration over TASO's operators, and of every family at
# two to four operators: what each depth adds.
enumeration: $(VENV)/installed
	$(BIN)/python benchmarks/enumeration.py

# The whole database from nothing: the committed bytes, or a failure.
regeneration: $(VENV)/dev
	$(BIN)/pytest -m regeneration tests/generator/test_database.py

# Every mutant of every rule: none may be proved and false. The first of each rule take ten minutes,
# all take many hours; a run goes on where the last one was stopped.
mutation: $(VENV)/dev
	$(BIN)/pytest -m mutation -s tests/verifier/test_mutation.py

# Every backend test model of the onnx package; prints what becomes of them.
suites: $(VENV)/dev
	$(BIN)/pytest -m suites -s tests/validation/test_suites.py

# Thousands of random and of guarded models and of damaged files, every rule in the runtime, and what
# takes many seconds elsewhere; prints what becomes of them.
many: $(VENV)/dev
	$(BIN)/pytest -m many -s

# Memory over a run on a model of 6 GB; needs 20 GB under the folder for temporary files.
large: $(VENV)/installed
	$(BIN)/python benchmarks/large.py

# Networks for images, quantized by the runtime's own quantizers, beside what they were before.
quantized: $(VENV)/installed
	for form in dynamic tensor channel; do $(BIN)/python benchmarks/quantized.py --form $$form --budget $(BUDGET) || exit 1; done

# Models that ship in packages, which are downloaded and not installed: 1.6 GB, and two hours and more.
deployed: $(VENV)/peers
	$(BIN)/python benchmarks/deployed.py --budget $(BUDGET) --out benchmarks/results

# Decoders with caches: a prompt, and a token behind a long past; the tokens that they generate.
decoders: $(VENV)/peers
	$(BIN)/python benchmarks/decoders.py --budget $(BUDGET) --peers

# The networks of TASO's table and the models above on a GPU, in 32 and in 16 bits, launched and from
# CUDA graphs, with a table and a chart. Needs the libraries of CUDA.
bench-cuda: $(VENV)/peers
	$(BIN)/python benchmarks/cuda.py --budget $(BUDGET)

# Composites in every spelling that the tests write down and whole exports, at fixed and at dynamic
# sizes.
spellings: $(VENV)/dev
	$(BIN)/pytest -m spellings tests/search

# Miniatures of architectures as exporters write them; prints how many nodes are left of each.
miniatures: $(VENV)/dev
	$(BIN)/pytest -m miniatures -s tests/search/test_miniatures.py

# How systems know that their rewrites are right: the table in docs/verifier.md.
compare: $(VENV)/dev
	$(BIN)/python benchmarks/compare_verifiers.py

# The site of the documents, in build/site; a warning is an error.
site: $(VENV)/dev
	$(BIN)/python docs/site.py
	$(BIN)/zensical build --strict -f mkdocs.yml

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(DEMO).onnx: benchmarks/hydrate.py benchmarks/models/repvgg_a0.onnx $(VENV)/installed
	mkdir -p $(@D)
	$(BIN)/python benchmarks/hydrate.py benchmarks/models/repvgg_a0.onnx $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or later found; set PYTHON" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Editable, so that the tests and the commands see the working tree.  uv takes a third of pip's time;
# pip does it where there is no uv for the machine, or it does not reach what pip is configured for.
COMMA := ,
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
install = { $(PIP) install uv 2>/dev/null && \
	$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --editable $(1); } || \
	$(PIP) install --editable $(1)

$(VENV)/installed: pyproject.toml | $(BIN)/python
	$(call install,.)
	touch $@

# The table has a column for each peer, and says which of them could not be installed.
$(VENV)/peers: $(VENV)/installed
	@if $(call install,'.[peers]'); \
	then touch $@; \
	else echo "some peers cannot be installed; the benchmark runs without them" >&2; fi

$(VENV)/dev: pyproject.toml | $(BIN)/python
	$(call install,'.[dev$(COMMA)site]')
	touch $(VENV)/installed $@
