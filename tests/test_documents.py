"""Every command and every program that README and documents show runs."""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml
from products import RULES, two_products

from xflow import api, cli, finder, gate, rule_files
from xflow.errors import ExitCode
from xflow.rule_files import default_directory, load_rules, select_rules

ROOT = Path(__file__).parent.parent
RULES_OF_XFLOW = default_directory()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

PARSED = re.compile(r"xflow calibrate|xflow rules generate(?!.*--against)")
"""Commands that take from half a minute to an hour: their own tests run them, here they are parsed.
Of the forms of `generate` one is run, for a few rules."""

SMALL = ["--families", "logic", "--max-ops", "1", "--jobs", "1"]


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(kind, text) for kind, text in BLOCK.findall(page.read_text(encoding="utf-8"))]


def commands() -> list[str]:
    """The lines of code blocks that call xflow, continued lines joined, comments left out."""
    found = {}
    for page in PAGES:
        for _, text in blocks(page):
            for line in text.replace("\\\n", " ").splitlines():
                if re.match(r"xflow [^ /]", line.strip()) and "  applies" not in line:
                    found[shlex.join(shlex.split(line, comments=True))] = page.name
    return list(found)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the documents speak of."""
    folder = tmp_path_factory.mktemp("documents")
    onnx.save(two_products(128), folder / "model.onnx")
    (folder / "models").mkdir()
    onnx.save(two_products(32), folder / "models" / "small.onnx")
    rules = folder / "some"
    (rules / "certificates").mkdir(parents=True)
    names = ["relu-relu-to-relu", "add-conv-conv-to-conv-add-pad"]
    chosen = select_rules(load_rules(default_directory()), only=names)
    (rules / "some.rules").write_text("\n".join(map(str, chosen)))
    for name in names:
        shutil.copy(default_directory() / "certificates" / f"{name}.json", rules / "certificates")
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
    assert cli.main([*line, *options]) == ExitCode.OK
    shutil.copy(folder / "report.json", folder / "earlier.json")
    shutil.copy(folder / "faster.onnx", folder / "earlier.onnx")
    return folder


@pytest.fixture(autouse=True)
def here(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is that of the documents' files; timing is short, and rules are few."""
    monkeypatch.chdir(workplace)
    for module in (api, rule_files):
        monkeypatch.setattr(module, "default_directory", lambda: workplace / "some")
    monkeypatch.setenv("XFLOW_CACHE", str(workplace / "costs.sqlite"))
    monkeypatch.setattr(gate, "TIMING_S", (0.2, 0.3))
    monkeypatch.setattr(finder, "calibrated", lambda *_: None)


@pytest.mark.parametrize("command", commands())
def test_a_command_in_the_documents_runs(command: str, workplace: Path) -> None:
    words = shlex.split(command)[1:]
    if PARSED.match(command):
        cli.build_parser().parse_args(cli.complete(words))
        return
    if "report.json" in words:  # what the commands before have written may be a later one's
        shutil.copy("earlier.json", "report.json")
        shutil.copy("earlier.onnx", "faster.onnx")
    names = {"DIR": "made" if "generate" in words else "some", "OTHER": "some"}
    words = [names.get(word, "relu-relu-to-relu" if word == "NAME" else word) for word in words]
    if "generate" in words:
        words += SMALL
    if "models/" in words:  # each model in a process of its own, where nothing is short
        words += ["--budget", "2"]
    if "derive" in words:
        words += ["--rules", str(RULES_OF_XFLOW)]
    expected = {ExitCode.OK} | ({ExitCode.CHANGED} if "--against" in words else set())
    try:
        code = cli.main(words)
    except SystemExit as done:  # --help
        code = ExitCode(int(done.code or 0))
    assert code in expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_program_in_the_documents_runs(page: Path) -> None:
    for kind, text in blocks(page):
        if kind == "python":
            scope: dict[str, Any] = {"model": "model.onnx"}
            exec(compile(text, page.name, "exec"), scope)
        if kind == "py":  # it is shown as it stands
            sources = (ROOT / "xflow" / "ops").glob("*.py")
            assert any(text in source.read_text(encoding="utf-8") for source in sources)


def test_each_target_of_make_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    known = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"`make ([a-z]+)", page.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= known


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


def test_the_recipe_for_workflows_is_one_by_github_s_schema(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
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
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not {"xflow", "generator", "verifier", "rules", "pyproject.toml"} & set(ignored)
    extras = re.findall(r"/source\[(\w+)\]", image)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= project["optional-dependencies"].keys()


def test_the_drawings_are_those_of_their_program() -> None:
    program = runpy.run_path(str(ROOT / "docs" / "drawings.py"))
    for name, draw in program["DRAWINGS"].items():
        assert (ROOT / "docs" / f"{name}.svg").read_text(encoding="utf-8") == str(draw())
