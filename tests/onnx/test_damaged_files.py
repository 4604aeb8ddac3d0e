"""Damaged and spliced model files: a right model, or one sentence; and nothing half-written.

5,000 of them take an hour: `make many`.
"""

import json
import queue
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import damage
import onnx
import pytest
from places import MODELS

from xflow.core.errors import ExitCode, ModelError
from xflow.onnx.checker import check_model
from xflow.onnx.files import load_model

IN_CI = 40
MANY = 5000
LIMIT_S = 60.0
NETWORKS = MODELS


class Server:
    """A process that optimizes one file after another, and may come to grief."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, damage.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def run(self, source: Path, target: Path) -> tuple[int, str, float] | str:
        """Exit code, what was said and seconds; or how the process ended."""
        assert self.process.stdin is not None
        print(json.dumps([str(source), str(target)]), file=self.process.stdin, flush=True)
        try:
            answer = self.answers.get(timeout=LIMIT_S)
        except queue.Empty:
            return "hangs"
        if not answer:
            return f"crashes with status {self.process.wait()}"
        code, said, seconds = json.loads(answer)
        return code, said, seconds

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server() -> Iterator[list[Server]]:
    """The process at work; a new one takes its place after an accident."""
    servers = [Server()]
    yield servers
    for each in servers:
        each.end()


def fault(data: bytes, folder: Path, servers: list[Server]) -> tuple[str, str]:
    """What is wrong with the outcome for a file, if anything; and how it ended."""
    source, target = folder / "in.onnx", folder / "out.onnx"
    target.unlink(missing_ok=True)
    source.write_bytes(data)
    answer = servers[-1].run(source, target)
    if isinstance(answer, str):
        servers[-1].end()
        servers.append(Server())
        return f"xflow {answer}", "crash"
    code, said, _ = answer
    left = {path.name for path in folder.iterdir()} - {"in.onnx", "out.onnx"}
    if left:
        return f"files are left behind: {left}", "rest"
    if code == ExitCode.OK:
        same = target.read_bytes() == data
        try:
            if same:  # it may be valid but for the order of its nodes, and the like
                load_model(target)
            else:
                check_model(target)  # with what the ONNX checker wants though nobody can say it
        except (onnx.checker.ValidationError, ModelError) as error:
            return f"invalid: {error}", "invalid"
        return "", "given back" if same else "optimized"
    refused = code in (ExitCode.ERROR, ExitCode.VALIDATION_FAILED)
    one_sentence = said.startswith("xflow: ") and said.count("\n") == 1
    if target.exists() or not refused or not one_sentence or "internal error" in said:
        return f"exit code {code}: {said}", "fault"
    return "", "refused"


def run(number: int, folder: Path, servers: list[Server]) -> Mapping[str, int]:
    """Damage so many files; assert that each ends as it should."""
    models = list(damage.seeds(NETWORKS))
    counts: Counter[str] = Counter()
    faults = []
    for seed in range(number):
        chance = random.Random(seed)
        data = damage.damaged(chance.choice(models), chance.choice(models), chance)
        wrong, end = fault(data, folder, servers)
        counts[end] += 1
        if wrong:
            faults.append(f"seed {seed}: {wrong}")
            print(faults[-1])
    print("\n" + ", ".join(f"{n} {end}" for end, n in counts.most_common()))
    assert not faults
    return counts


def test_damaged_files_end_in_a_right_model_or_in_one_sentence(
    tmp_path: Path, server: list[Server]
) -> None:
    counts = run(IN_CI, tmp_path, server)
    assert counts["refused"]
    assert counts["optimized"] + counts["given back"]


@pytest.mark.many
@pytest.mark.timeout(14400)
def test_thousands_of_damaged_files_do(tmp_path: Path, server: list[Server]) -> None:
    run(MANY, tmp_path, server)
