"""Every command and every program that README and documents show runs."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from known_rules import saying
from products import RULES, two_products

from xflow.cli import entry
from xflow.cli.commands import check
from xflow.core.errors import ExitCode
from xflow.pipeline import api, attempts, gate
from xflow.rewriting import store
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules

ROOT = Path(__file__).parents[2]
RULES_OF_XFLOW = default_directory()
SHOWN = saying("Relu(Relu(x))", "Relu(x)")
"""What stands for NAME."""
CONV = "pads=[*d * p + e, *d * q + f], strides=[*s], dilations=[*d], group=g)"
MERGED = (
    f"Add(Conv(x, w, pads=[*e, *f], strides=[*s], dilations=[*d], group=g), Conv(x, v, b, {CONV})",
    f"Conv(x, Add(v, Pad(w, pads=[0, 0, *p, 0, 0, *q])), b, {CONV}",
)
"""The rule that the documents show."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

PARSED = re.compile(r"xflow calibrate|xflow rules generate(?!.*--against)")
"""Commands that take from half a minute to an hour: their own tests run them, here they are parsed.
Of the forms of `generate` one is run, for a few rules."""

SMALL = ["--families", "logic", "--max-ops", "1", "--jobs", "1"]


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(kind, text) for kind, text in BLOCK.findall(page.read_text(encoding="utf-8"))]


def shown() -> list[str]:
    """The lines that somebody is to type, continued lines joined, comments left out.

    Blocks show commands alone, or a session with `$` before commands; or a rule, or a file tree.
    """
    found = {}
    for page in PAGES:
        for kind, text in blocks(page):
            if kind or text.lstrip().startswith(("rule ", "numerics ")):
                continue
            lines = text.replace("\\\n", " ").splitlines()
            if any(line.startswith("$ ") for line in lines):
                lines = [line[2:] for line in lines if line.startswith("$ ")]
            elif any(line.startswith("generator/ ") for line in lines):
                continue
            found.update(dict.fromkeys(line.partition("  #")[0].strip() for line in lines))
    return [line for line in found if line]


def commands() -> list[str]:
    """Those that call xflow and nothing else, outside of sessions."""
    prompted = [command for command, _ in sessions()]
    return [line for line in shown() if line.startswith("xflow ") and line not in prompted]


def sessions() -> list[tuple[str, list[str]]]:
    """What sessions show: a command, and the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for page in PAGES:
        for _, text in blocks(page):
            for line in text.replace("\\\n", " ").splitlines():
                if line.startswith("$ "):
                    found.append((line[2:], []))
                elif text.startswith("$ "):
                    found[-1][1].append(line)
    return found


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the documents speak of."""
    folder = tmp_path_factory.mktemp("documents")
    onnx.save(two_products(128), folder / "model.onnx")
    onnx.save(decoder(), folder / "decoder.onnx")
    (folder / "models").mkdir()
    onnx.save(two_products(32), folder / "models" / "small.onnx")
    (folder / "samples").mkdir()
    values = np.random.default_rng(0).standard_normal((3, 128)).astype(np.float32)
    np.savez(folder / "samples" / "first.npz", x=values)
    np.savez(folder / "worst_case.npz", x=1e4 * values)
    rules = folder / "some"
    copy_rules(rules, SHOWN, saying(*MERGED))
    copy_rules(folder / "quick", SHOWN)
    (folder / "my.rules").write_text(str(RULES[0]))
    line = [str(folder / "model.onnx"), str(folder / "faster.onnx"), "--cost", "estimated", "-q"]
    options = [
        "--budget",
        "5",
        "--rules",
        str(rules),
        "--check",
        "1",
        "--report",
        str(folder / "report.json"),
    ]
    assert entry.main([*line, *options]) == ExitCode.OK
    shutil.copy(folder / "report.json", folder / "earlier.json")
    shutil.copy(folder / "faster.onnx", folder / "earlier.onnx")
    return folder


def decoder() -> onnx.ModelProto:
    """Keys of the past and those of new tokens, as far as the mask is as long as both."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (int64[batch, new] input_ids, int64[batch, total] attention_mask,
           float[batch, 8, past, 64] past) => (float[batch, 8, all, 64] present) {
            one = Constant<value_ints = [1]>() last = Constant<value_ints = [3]>()
            f = Cast<to = 1>(input_ids) u = Unsqueeze(f, one) w = Unsqueeze(u, last)
            wide = Constant<value_ints = [1, 8, 1, 64]>() x = Expand(w, wide)
            k = Concat<axis = 2>(past, x) m = Cast<to = 1>(attention_mask) v = Unsqueeze(m, one)
            seen = Unsqueeze(v, last) r = Relu(k) q = Relu(r) present = Mul(q, seen) }""")
    model.graph.input[2].name = name = "past_key_values.0.key"  # no name of the language above
    for node in model.graph.node:
        node.input[:] = [name if each == "past" else each for each in node.input]
    return model


def copy_rules(folder: Path, *chosen: Rule) -> None:
    """Some rules of xflow as a folder of their own, with their certificates."""
    (folder / "certificates").mkdir(parents=True)
    (folder / "some.rules").write_text("\n".join(map(str, chosen)))
    for rule in chosen:
        shutil.copy(RULES_OF_XFLOW / "certificates" / f"{rule.name}.json", folder / "certificates")


@pytest.fixture(autouse=True)
def here(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is that of the documents' files; timing is short, and rules are few."""
    monkeypatch.chdir(workplace)
    for module in (api, store):
        monkeypatch.setattr(module, "default_directory", lambda: workplace / "some")
    monkeypatch.setenv("XFLOW_CACHE", str(workplace / "costs.sqlite"))
    monkeypatch.setattr(gate, "TIMING_S", (0.2, 0.3))
    monkeypatch.setattr(check, "TIMING_S", 0.5)
    monkeypatch.setattr(attempts, "calibrated", lambda *_: None)


@pytest.mark.parametrize("command", commands())
def test_a_command_in_the_documents_runs(command: str, workplace: Path) -> None:
    words = shlex.split(command)[1:]
    if PARSED.match(command):
        entry.build_parser().parse_args(entry.complete(words))
        return
    if "report.json" in words:  # what the commands before have written may be a later one's
        shutil.copy("earlier.json", "report.json")
        shutil.copy("earlier.onnx", "faster.onnx")
    folder = next(
        (
            folder
            for action, folder in (("generate", "made"), ("learn", "learned"), ("verify", "quick"))
            if action in words
        ),
        "some",
    )
    names = {"DIR": folder, "OTHER": "some"}
    words = [names.get(word, SHOWN.name if word == "NAME" else word) for word in words]
    if "generate" in words:
        words += SMALL
    if "learn" in words:
        words += ["--minutes", "0.1"]
    if "models/" in words:  # each model in a process of its own, where nothing is short
        words += ["--budget", "2"]
    if "derive" in words:
        words += ["--rules", str(RULES_OF_XFLOW)]
    expected = {ExitCode.OK} | ({ExitCode.CHANGED} if "--against" in words else set())
    try:
        code = entry.main(words)
    except SystemExit as done:  # --help
        code = ExitCode(int(done.code or 0))
    assert code in expected


@pytest.mark.parametrize(("command", "printed"), sessions())
def test_a_session_in_the_documents_prints_what_they_show(
    command: str, printed: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """But for seconds; `...` stands for lines that are left out."""
    verdicts = {"proved": ExitCode.OK, "refuted": ExitCode.REFUTED}
    assert entry.main(shlex.split(command)[1:]) == verdicts[printed[0].split()[0]]
    out = _timeless(capfd.readouterr().out).splitlines()
    for line in printed:
        if line.strip() not in ("...", ""):
            assert _timeless(line) in out


def _timeless(text: str) -> str:
    return re.sub(r"\(\d+\.\d+ s\)", "(some s)", text)


OTHERS = {
    "cat model.onnx | xflow optimize - - > faster.onnx": "in a shell, below",
    'docker run --rm -v "$PWD:/work" xflow model.onnx faster.onnx': "its words are read, below",
    "docker build -t xflow .": "its file is looked at, below; there is no Docker to build it with",
}
"""Commands that are not xflow alone, and what becomes of them."""


def test_no_command_in_the_documents_is_left_out() -> None:
    run = {*commands(), *OTHERS, *(command for command, _ in sessions())}
    left = [line for line in shown() if line not in run]
    known = (  # the first three are looked at below, the completions in test_helpful
        *("make ", "pip install ", "python benchmarks/", 'eval "$(xflow completion '),
        *("python3 -m venv ", ". "),
    )
    assert [line for line in left if not line.startswith(known)] == []


def test_models_go_through_a_pipe_as_shown(workplace: Path) -> None:
    command = next(line for line in OTHERS if line.startswith("cat "))
    assert command in shown()
    short = " --cost estimated --budget 2 --rules some >"
    line = command.replace("xflow ", f"{sys.executable} -m xflow ").replace(" >", short)
    subprocess.run(["bash", "-o", "pipefail", "-c", line], check=True, capture_output=True)
    assert onnx.load("faster.onnx").graph.output == onnx.load("model.onnx").graph.output


def test_rules_in_the_documents_are_true() -> None:
    """One of the database is as it is there, but for what was measured; others are proved."""
    known = {rule.statement: rule for rule in load_rules(RULES_OF_XFLOW)}
    for page in PAGES:
        for _, text in blocks(page):
            if not text.startswith("rule "):
                continue
            (rule, *_) = parse_rules(text)
            if rule.statement in known and rule.notes:
                own = known[rule.statement]
                notes = {k: v for k, v in own.notes.items() if k != "numerics"}
                assert text == str(replace(own, notes=notes))
            else:
                Path("shown.rules").write_text(text)
                assert entry.main(["prove", "shown.rules"]) == ExitCode.OK


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_program_in_the_documents_runs(page: Path) -> None:
    for kind, text in blocks(page):
        if kind == "python":
            scope: dict[str, Any] = {"model": "model.onnx"}
            exec(compile(text, page.name, "exec"), scope)
        if kind == "py":  # it is shown as it stands
            sources = (ROOT / "xflow" / "ops").glob("*.py")
            assert any(text in source.read_text(encoding="utf-8") for source in sources)


def test_each_target_of_make_that_is_named_can_be_made() -> None:
    """All commands behind it are there: make says what it would do."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    named = {name for text in texts for name in re.findall(r"^(?:\$ )?make ([a-z]+)", text, re.M)}
    named |= {name for text in texts for name in re.findall(r"`make ([a-z-]+)", text)}
    assert {"demo", "test", "bench"} <= named
    line = ["make", "--dry-run", "--always-make", f"PYTHON={sys.executable}", *sorted(named)]
    done = subprocess.run(line, cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in re.findall(r"(?:benchmarks|docs|tests)/[\w/]+\.py", done.stdout + "".join(texts)):
        assert (ROOT / name).exists(), name


def test_the_first_lines_of_the_readme_have_the_figures_that_are_below() -> None:
    first, *rest = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")
    figures = next(part for part in rest if part.startswith("Figures"))
    said = re.findall(r"\d+[.,]\d{3}", first)
    assert len(said) >= 4
    assert [number for number in said if number not in figures] == []


def test_each_extra_that_is_named_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    named = {name for text in texts for name in re.findall(r"pip install '[^'\[]*\[(\w+)\]'", text)}
    assert named
    assert named <= project["optional-dependencies"].keys()


def test_each_link_between_documents_leads_somewhere() -> None:
    for page in PAGES:
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_document_is_on_the_site() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    shown = {name for entry in site["nav"] for name in entry.values()}
    assert {page.name for page in PAGES[1:]} | {"index.md", "catalogue.md"} == shown


def lint(tool: str, *arguments: str, text: str | None = None) -> None:
    """Run one of the development tools, which must find nothing."""
    line = [str(Path(sys.executable).with_name(tool)), *arguments]
    done = subprocess.run(line, input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_action_is_one_by_github_s_schema_and_its_scripts_are_sound() -> None:
    lint("check-jsonschema", "--builtin-schema", "vendor.github-actions", str(ROOT / "action.yml"))
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    given = {"GITHUB_ACTION_PATH"}
    for step in action["runs"]["steps"]:
        given.update(step.get("env", {}))
        for name in re.findall(r"inputs\.([a-z]+)", str(step.get("env", ""))):
            assert name in action["inputs"]
        if "run" in step:
            assert set(re.findall(r"\$\{?([A-Z_]{3,})\b", step["run"])) <= given
            lint("shellcheck", "--shell", step["shell"], "-", text=step["run"])


@pytest.mark.parametrize("report", ["report.json", "none-yet.json"])
def test_the_scripts_of_the_action_run_commands_that_there_are(report: str) -> None:
    """With a report they replay it, without they optimize; then they certify."""
    (*_, last) = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    given = {"MODEL": "a b.onnx", "OUTPUT": "c d.onnx", "REPORT": report, "BUDGET": "60"}
    stand_in = "xflow() { printf '%s\\0' \"$@\"; printf '\\n'; }\n"
    done = subprocess.run(
        [last["shell"], "-e", "-c", stand_in + last["run"]],
        env={**os.environ, **given},
        text=True,
        capture_output=True,
        check=True,
    )
    lines = [line.rstrip("\0").split("\0") for line in done.stdout.splitlines()]
    parsed = [entry.build_parser().parse_args(entry.complete(words)) for words in lines]
    first = "replay" if report == "report.json" else "optimize"
    assert [words[0] for words in lines] == [first, "certify"]
    assert {(each.input, each.output, each.report) for each in parsed} == {
        (given["MODEL"], given["OUTPUT"], report)
    }


def test_the_recipes_for_workflows_and_hooks_are_such_by_their_schemas(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    recipe, hook = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "hook.yaml").write_text(hook)
    lint("pre-commit", "validate-config", str(tmp_path / "hook.yaml"))
    (entry,) = [each["entry"] for each in yaml.safe_load(hook)["repos"][0]["hooks"]]
    assert entry in commands()
    steps = yaml.safe_load(recipe)
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert all(set(step["with"]) <= set(action["inputs"]) for step in steps)
    jobs = {"faster": {"runs-on": "ubuntu-latest", "steps": steps}}
    path = tmp_path / "workflow.yml"
    path.write_text(yaml.safe_dump({"on": "push", "jobs": jobs}))
    lint("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(path))


def test_the_image_is_sound_and_copies_what_the_package_needs() -> None:
    lint("hadolint", str(ROOT / "Dockerfile"))
    image = (ROOT / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["xflow"]' in image
    (run,) = [line for line in OTHERS if line.startswith("docker run")]
    assert run in shown()
    entry.build_parser().parse_args(entry.complete(run.partition(" xflow ")[2].split()))
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not {"xflow", "generator", "verifier", "rules", "pyproject.toml"} & set(ignored)
    extras = re.findall(r"/source\[(\w+)\]", image)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= project["optional-dependencies"].keys()


def test_the_drawings_are_those_of_their_program() -> None:
    program = runpy.run_path(str(ROOT / "docs" / "drawings.py"))
    for name, draw in program["DRAWINGS"].items():
        assert (ROOT / "docs" / f"{name}.svg").read_text(encoding="utf-8") == str(draw())
