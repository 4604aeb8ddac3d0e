"""Progress is for somebody who looks at a terminal, and for nobody else."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from products import RULES, two_products

pty = pytest.importorskip("pty", reason="needs pseudo-terminals")

CODE = """
import time
from xflow.cli.progress import ProgressDisplay
with ProgressDisplay({quiet}, {verbose}) as progress:
    progress("load", {{}})
    for part in range(3):
        time.sleep(0.15)
        progress("search", {{"pass": 1, "region": part + 1, "of": 3, "best": "~1.050x"}})
print("done")
"""


def on_a_terminal(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """Everything that a command writes to a terminal of 80 columns."""
    master, slave = pty.openpty()
    variables = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        env={**os.environ, **variables, **(environment or {})},
    )
    os.close(slave)
    data = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # all ends are closed
            break
        if not part:
            break
        data += part
    os.close(master)
    assert process.wait(timeout=60) == 0, data
    return data.decode()


def shown(quiet: bool = False, verbose: bool = False, **environment: str) -> str:
    code = CODE.format(quiet=quiet, verbose=verbose)
    return on_a_terminal([sys.executable, "-c", code], environment)


def test_a_terminal_shows_a_line_that_goes() -> None:
    text = shown()
    assert "search" in text
    assert "region 3" in text
    assert "best ~1.050x" in text
    *_, last = text.split("\x1b[2K")  # the line is erased
    assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", last).strip() == "done"
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is there again"


def test_brackets_and_controls_in_names_are_shown() -> None:
    code = CODE.replace("~1.050x", "[/b] [v2]/a.onnx \\x1b[31m")
    text = on_a_terminal([sys.executable, "-c", code.format(quiet=False, verbose=False)])
    assert "best [/b] [v2]/a.onnx" in text
    code = code.format(quiet=False, verbose=True)
    text = on_a_terminal([sys.executable, "-c", code])
    assert "best [/b] [v2]/a.onnx \\x1b[31m" in text


def test_no_color_means_none() -> None:
    assert re.search(r"\x1b\[\d*(;\d+)*m", shown())
    assert not re.search(r"\x1b\[(3\d|4\d|38|48)[;m]", shown(NO_COLOR="1"))


def test_nothing_is_drawn_where_nobody_wants_it() -> None:
    assert shown(quiet=True).strip() == "done"
    assert shown(TERM="dumb").strip() == "done"


def test_a_pipe_gets_steps_only_if_asked() -> None:
    for verbose in (False, True):
        code = CODE.format(quiet=False, verbose=verbose)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout == "done\n"
        assert ("search  pass 1  region 3  of 3" in done.stderr) == verbose
        assert "\x1b" not in done.stderr


def test_a_run_on_a_terminal_of_80_columns(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "two.rules").write_text("\n".join(map(str, RULES)))
    source = tmp_path / "in.onnx"
    onnx.save(two_products(), source)
    command = [sys.executable, "-m", "xflow", str(source), str(tmp_path / "out.onnx")]
    options = ["--cost", "estimated", "--budget", "5", "--rules", str(rules), "--check", "1"]
    text = on_a_terminal([*command, *options], {"NO_COLOR": "1"})
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n")
    assert "Operators" in plain
    assert " operators, 0 opaque; ~" in plain
    assert max(len(line.rstrip()) for line in plain.split("\n")) <= 80
