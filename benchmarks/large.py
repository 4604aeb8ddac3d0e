"""Memory over a run on a model of many gigabytes, whose weights lie in a file beside it.

    python benchmarks/large.py --gigabytes 6

makes such a model (a chain of feed-forward blocks, in some of which two products of one value are
added, so that there is something to fold), optimizes it with `--cost estimated` and prints the peak
memory of each process of the run: what is resident, and what of that is its own rather than a page
of a file, which the system takes back when it needs it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import psutil
from onnx import TensorProto, helper

WIDTH, INNER = 4096, 8192
SUMS = 4
"""Each block of so many has a sum of two products."""
MIB = 2**20


def write_model(path: Path, size: int) -> tuple[int, int]:
    """Write a model with at least `size` bytes of weights; return the largest one's, and all."""
    rng = np.random.default_rng(0)
    # Drawing all weights would take longer than the run: each is a part of one long draw.
    drawn = rng.standard_normal(WIDTH * INNER + 2**20, dtype=np.float32) * np.float32(0.01)
    nodes, weights, offset, last, block = [], [], 0, "x", 0
    data = path.with_suffix(".data")
    with data.open("wb") as file:

        def weight(name: str, rows: int, columns: int) -> str:
            nonlocal offset
            start = int(rng.integers(2**20))
            length = 4 * rows * columns
            file.write(drawn[start : start + rows * columns].data)
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[rows, columns])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data.name), ("offset", offset), ("length", length)):
                tensor.external_data.add(key=key, value=str(value))
            weights.append(tensor)
            offset += length
            return name

        while offset < size:
            up = helper.make_node(
                "MatMul", [last, weight(f"u{block}", WIDTH, INNER)], [f"a{block}"]
            )
            relu = helper.make_node("Relu", [f"a{block}"], [f"r{block}"])
            down = weight(f"d{block}", INNER, WIDTH)
            nodes += [up, relu, helper.make_node("MatMul", [f"r{block}", down], [f"p{block}"])]
            out = f"p{block}"
            if block % SUMS == 0:
                side = weight(f"s{block}", INNER, WIDTH)
                nodes.append(helper.make_node("MatMul", [f"r{block}", side], [f"q{block}"]))
                nodes.append(helper.make_node("Add", [f"p{block}", f"q{block}"], [f"t{block}"]))
                out = f"t{block}"
            nodes.append(helper.make_node("Add", [out, last], [f"y{block}"]))
            last, block = f"y{block}", block + 1
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])
    y = helper.make_tensor_value_info(last, TensorProto.FLOAT, ["batch", WIDTH])
    graph = helper.make_graph(nodes, "large", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return 4 * WIDTH * INNER, offset


def watch(process: "subprocess.Popen[str]") -> dict[int, tuple[str, int, int]]:
    """The peaks (resident, own) of each process of a run, by its number, with what it is."""
    peaks: dict[int, tuple[str, int, int]] = {}
    root = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            family = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            break
        for each in family:
            try:
                memory = each.memory_info()
                name = "run" if each.pid == process.pid else "helper process"
            except psutil.NoSuchProcess:
                continue
            _, resident, own = peaks.get(each.pid, ("", 0, 0))
            now = memory.rss, memory.rss - memory.shared
            peaks[each.pid] = (name, max(resident, now[0]), max(own, now[1]))
        time.sleep(0.02)
    return peaks


def main() -> int:
    """Make the model, run, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gigabytes", type=float, default=6.0, help="of weights (6)")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds (60)")
    parser.add_argument("--folder", type=Path, help="where the models go for the time of the run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        before, after, report = (Path(name) / each for each in ("in.onnx", "out.onnx", "r.json"))
        largest, total = write_model(before, int(options.gigabytes * 1e9))
        print(f"model: {total / 1e9:.2f} GB of weights, the largest {largest / MIB:.0f} MiB")
        command = [sys.executable, "-m", "xflow", "optimize", str(before), str(after)]
        command += ["--cost", "estimated", "--budget", str(options.budget), "--report", str(report)]
        start = time.monotonic()
        process = subprocess.Popen(command, text=True)
        peaks = watch(process)
        seconds = time.monotonic() - start
        print(f"exit code {process.wait()}, {seconds:.0f} s")
        for what, resident, own in sorted(peaks.values(), key=lambda each: -each[1]):
            print(f"{what}: {resident / MIB:.0f} MiB resident, {own / MIB:.0f} MiB of its own")
        bound = 1.5 * largest + 1024 * MIB
        print(f"bound: {bound / MIB:.0f} MiB (1.5 times the largest weight and 1 GiB)")
        if report.exists():
            found = json.loads(report.read_text())
            print("rules:", {use["name"]: use["count"] for use in found["rules"]})
        if after.exists():
            onnx.checker.check_model(str(after))
        return 0 if max(resident for _, resident, _ in peaks.values()) <= bound else 1


if __name__ == "__main__":
    raise SystemExit(main())
