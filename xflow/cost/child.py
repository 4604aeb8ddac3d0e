"""The measuring process: loads ONNX models in ONNX Runtime, runs them and times them.

`xflow.cost.worker` starts this file as a script of its own (`python -P child.py BOOKMARK`), so it
imports nothing but the standard library, numpy and onnxruntime: it starts fast, and a crash, a
hang or a lack of memory in the runtime ends this process and not its parent.

Requests come through stdin and answers leave through what was stdout, each a pickle behind its
length (8 bytes, little-endian).  The bookmark is a file of 16 bytes shared with the parent: a
counter of the steps done, and the number of the model at work (0: none), so that the parent can
tell a slow model from a hanging one, and which model was at work when this process died.
"""

import contextlib
import ctypes
import faulthandler
import functools
import gc
import json
import mmap
import os
import pickle
import queue
import random
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

BOOKMARK = struct.Struct("<QQ")
LENGTH = struct.Struct("<Q")
# ONNX element types that numpy lacks, and the unsigned type that carries their bits:
# bfloat16, the float8 family, float8e8m0.
BITS = {16: "u2", 17: "u1", 18: "u1", 19: "u1", 20: "u1", 24: "u1"}
MEMORY_TROUBLE = ("bad_alloc", "bad allocation", "Failed to allocate memory", "out of memory")
NO_TIME = "no time was left to time it"
WARM_UP_RUNS = 3
RESULT_BYTES = 2**31  # of all outputs of one request: the parent has to hold them twice
RESIDENT_BYTES = 2**28  # of mapped files, from which on their pages are given back
PAGES_SECONDS = 5e-3  # between two looks at them: at most some ten megabytes are read meanwhile
PROFILED_RUNS = 2, 50  # at least, and at most: each operator of each is written to a file
CONTROL = frozenset({"If", "Loop", "Scan"})
"""Operators whose time is that of the nodes in them, which have events of their own."""
SAMPLE_SECONDS = 2e-3  # a sample shorter than this mostly measures the clock and the scheduler


class Steps:
    """The bookmark: where this process stands, readable by the parent without any message.

    A message per run would wake the parent up while the next run is being timed.
    """

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), BOOKMARK.size)
        self._count = 0

    def at(self, model: int) -> None:
        """Note that work on model number `model` (from 1; 0 for none) begins."""
        self._count += 1
        BOOKMARK.pack_into(self._map, 0, self._count, model)


def send(channel: BinaryIO, message: Any) -> None:
    """Write one message with its length in front."""
    body = pickle.dumps(message, protocol=5)
    channel.write(LENGTH.pack(len(body)))
    channel.write(body)
    channel.flush()


def receive(channel: BinaryIO) -> Any:
    """Read one message; raises `EOFError` once the other side is gone."""
    head = channel.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    (length,) = LENGTH.unpack(head)
    body = channel.read(length)
    if len(body) < length:
        raise EOFError
    return pickle.loads(body)


def reason(error: BaseException) -> str:
    """Say in one line why a model failed."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or any(each in text for each in MEMORY_TROUBLE):
        return "out of memory"
    return text[:400] or type(error).__name__


def limit_memory(limit: int | None) -> None:
    """Let this process have at most `limit` bytes of private data, where the system can do so.

    Whether limited or not, the system is asked to end this process before any other when memory
    runs out.  RLIMIT_DATA and not RLIMIT_AS: GPU drivers and thread stacks reserve far more
    addresses than they use.
    """
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    if limit is not None:
        try:
            import resource  # noqa: PLC0415 - does not exist on Windows
        except ImportError:
            return
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


@functools.cache
def load_libraries(runtime: Any) -> None:
    """Load the libraries of CUDA and cuDNN that were installed as Python packages.

    The system's loader does not find these; where there are none, it looks in its usual places.
    """
    with contextlib.suppress(Exception):  # what is missing is told by the session that needs it
        runtime.preload_dlls(msvc=False)


class Runner:
    """One loaded model, its inputs on the device, ready to run."""

    def __init__(self, runtime: Any, source: bytes | str, options: dict[str, Any]) -> None:
        session_options = runtime.SessionOptions()
        levels = runtime.GraphOptimizationLevel
        session_options.graph_optimization_level = (
            levels.ORT_ENABLE_ALL if options.get("optimized", True) else levels.ORT_DISABLE_ALL
        )
        session_options.intra_op_num_threads = options["threads"]
        session_options.inter_op_num_threads = 1
        session_options.log_severity_level = 4
        if "profile" in options:
            session_options.enable_profiling = True
            session_options.profile_file_prefix = options["profile"]
        for key, value in options["entries"].items():
            session_options.add_session_config_entry(key, value)
        self.runtime = runtime
        self.device = options["device"]
        if self.device != "cpu":
            load_libraries(runtime)
        # A provider that fails to load is left out by the runtime without an error.
        self.session = runtime.InferenceSession(
            source, session_options, options["providers"], options["provider_options"]
        )
        if options["providers"][0] not in self.session.get_providers():
            raise RuntimeError(f"{options['providers'][0]} could not be loaded by ONNX Runtime")
        # Otherwise a CUDA failure while running would silently go on on the CPU.
        self.session.disable_fallback()

    def value(self, array: Any, device: str) -> Any:
        """Return the runtime's tensor for a wire value: an array, or (element type, bits)."""
        if isinstance(array, tuple):
            kind, bits = array
            return self.runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, kind)
        return self.runtime.OrtValue.ortvalue_from_numpy(array, device, 0)

    def bind(self, feeds: dict[str, Any]) -> Callable[[], Any]:
        """Return a function that runs the model once on `feeds` and leaves the outputs there.

        Inputs and outputs are bound, so that what is timed is the runtime and neither Python's
        conversions nor, on a GPU, the copies from and to the host.  The runtime cannot bind
        strings and sequences; models with those are called the ordinary way.
        """
        types = [item.type for item in (*self.session.get_inputs(), *self.session.get_outputs())]
        if any(not kind.startswith("tensor(") or kind == "tensor(string)" for kind in types):
            return lambda: self.session.run(None, feeds)
        binding = self.session.io_binding()
        for name, array in feeds.items():
            device = "cpu" if isinstance(array, tuple) else self.device
            binding.bind_ortvalue_input(name, self.value(array, device))
        keeps = True

        def bind_outputs() -> None:
            binding.clear_binding_outputs()
            for output in self.session.get_outputs():
                binding.bind_output(output.name, self.device)

        def run() -> None:
            nonlocal keeps
            if not keeps:
                bind_outputs()
            try:
                self.session.run_with_iobinding(binding)
            except Exception as error:
                # The outputs of one run are where the next one writes, unless the model gives other
                # shapes than it declares: then the runtime refuses its own.
                if not keeps or "for output" not in str(error):
                    raise
                keeps = False
                bind_outputs()
                self.session.run_with_iobinding(binding)
            binding.synchronize_outputs()

        bind_outputs()
        return run

    def outputs(self, feeds: dict[str, Any], limit_s: float | None = None) -> dict[str, Any]:
        """Run once and return every output as a wire value, by name.

        After `limit_s` seconds the run is broken off, once the operator at work is done.
        """
        options = self.runtime.RunOptions()
        if limit_s is None:
            return self._outputs(feeds, options)

        def end() -> None:
            options.terminate = True

        timer = threading.Timer(limit_s, end)
        timer.start()
        try:
            return self._outputs(feeds, options)
        finally:
            timer.cancel()

    def _outputs(self, feeds: dict[str, Any], options: Any) -> dict[str, Any]:
        results = self.session.get_outputs()
        names = [output.name for output in results]
        exotic = any("bfloat" in output.type or "float8" in output.type for output in results)
        if not exotic and not any(isinstance(array, tuple) for array in feeds.values()):
            return dict(zip(names, self.session.run(names, feeds, options), strict=True))
        values = {name: self.value(array, "cpu") for name, array in feeds.items()}
        outputs = self.session.run_with_ort_values(names, values, options)
        return {name: wire(value) for name, value in zip(names, outputs, strict=True)}


class Pages:
    """Releases the pages of weights that the runtime maps, while a model runs.

    They count as resident memory from the first use on, all gigabytes of them. A mapping that the
    runtime has written to is left alone; the others are made read-only, so that nothing can be
    written that would be lost: the system reads them again from the file.
    """

    def __init__(self, files: list[str]) -> None:
        self._files = {(info.st_dev, info.st_ino) for info in map(os.stat, files)}
        self._library = ctypes.CDLL(None)
        for start, length, mode in self._mappings():
            if mode.startswith("rw"):
                self._call("mprotect", start, length, mmap.PROT_READ)

    def _call(self, name: str, start: int, length: int, what: int) -> None:
        getattr(self._library, name)(ctypes.c_void_p(start), ctypes.c_size_t(length), what)

    def _mappings(self) -> list[tuple[int, int, str]]:
        """Return start, length and mode of each mapping of the files that is as the file is."""
        found: list[tuple[int, int, str]] = []
        current: tuple[int, int, str] | None = None
        with open("/proc/self/smaps") as text:
            for line in text:
                words = line.split()
                if not words[0].endswith(":"):  # address, mode, offset, device, inode, path
                    low, high = (int(part, 16) for part in words[0].split("-"))
                    major, minor = (int(part, 16) for part in words[3].split(":"))
                    ours = (os.makedev(major, minor), int(words[4])) in self._files
                    current = (low, high - low, words[1]) if ours else None
                elif current is not None and words[0] == "Anonymous:" and words[1] == "0":
                    found.append(current)
        return found

    def release(self) -> None:
        """Give them back, if there are many."""
        with open("/proc/self/statm") as text:
            resident = int(text.read().split()[2]) * mmap.PAGESIZE
        if resident > RESIDENT_BYTES:
            for start, length, mode in self._mappings():
                if mode.startswith("r--"):
                    self._call("madvise", start, length, mmap.MADV_DONTNEED)


@contextlib.contextmanager
def giving_back(files: list[str]) -> Iterator[None]:
    """While models run in this block, give back the pages of these files, where that can be done.

    Sessions must neither be made nor end in it: unmapped addresses may be used again.
    """
    pages = None
    if files and sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            pages = Pages(files)
    if pages is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        with contextlib.suppress(OSError):
            while not over.wait(PAGES_SECONDS):
                pages.release()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def wire(value: Any) -> Any:
    """Return a runtime value as something that can be pickled without the runtime."""
    if not value.has_value():
        return None
    kind = value.element_type() if value.is_tensor() else 0
    if kind in BITS:
        import numpy  # noqa: PLC0415 - only where needed; the runtime has loaded it

        raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
        return kind, numpy.frombuffer(raw, BITS[kind]).reshape(value.shape())
    return value.numpy()


def bytes_of(value: Any) -> int:
    """Return the bytes of a wire value."""
    if isinstance(value, list | tuple):
        return sum(map(bytes_of, value))
    return int(getattr(value, "nbytes", 0))


def run_all(runtime: Any, steps: Steps, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Answer "run": load one model and return its outputs for each set of inputs."""
    steps.at(1)
    runner = Runner(runtime, request["model"], request["options"])
    results = []
    size = 0
    with giving_back(request.get("mapped", [])):
        for feeds in request["feeds"]:
            steps.at(1)
            results.append(runner.outputs(feeds))
            size += sum(map(bytes_of, results[-1].values()))
            if size > RESULT_BYTES:
                raise MemoryError
    steps.at(0)
    return results


def run_each(runtime: Any, steps: Steps, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Answer "each": load one model and run it on each set of inputs; a failure costs that set.

    Returns for each set `{"outputs": values by name}` or `{"failed": why}`.  Of the first `needed`
    sets, all but the first `given` ones are `{"late": True}` where one that takes as long as the
    longest before it would end after `needed_s` seconds, if there is such a limit and one set has
    not failed.  The others are run as long as `extra_s` seconds and `extra_bytes` of outputs last,
    each at most as long as these seconds: there may be fewer answers than sets.  With `until_one`,
    nothing is run behind the first set that does not fail.  The bookmark's model is the number of
    the set, 0 while loading.
    """
    steps.at(0)
    runner = Runner(runtime, request["model"], request["options"])
    results: list[dict[str, Any]] = []
    size, begin, needed, longest = 0, time.perf_counter(), request["needed"], 0.0
    given, limit = request.get("given", 0), request.get("needed_s")
    with giving_back(request.get("mapped", [])):
        for number, feeds in enumerate(request["feeds"]):
            spent = time.perf_counter() - begin
            if number == needed:
                size, begin = 0, time.perf_counter()
            elif number > needed:
                if spent > request["extra_s"] or size > request["extra_bytes"]:
                    break
            elif number >= given and longest and limit is not None and spent + longest > limit:
                results.append({"late": True})
                continue
            steps.at(number + 1)
            try:
                outputs = runner.outputs(feeds, None if number < needed else request["extra_s"])
            except Exception as error:  # the runtime raises many types
                if number >= needed and time.perf_counter() - begin > request["extra_s"]:
                    break
                results.append({"failed": reason(error)})
                continue
            size += sum(map(bytes_of, outputs.values()))
            if size > RESULT_BYTES:
                raise MemoryError
            results.append({"outputs": outputs})
            longest = max(longest, time.perf_counter() - begin - spent)
            if request.get("until_one"):
                break
    steps.at(0)
    return results


def load_types(runtime: Any, steps: Steps, request: dict[str, Any]) -> list[str] | None:
    """Answer "types": the runtime's types of a model's outputs; None if it cannot be loaded."""
    steps.at(1)
    try:
        runner = Runner(runtime, request["model"], request["options"])
        found: list[str] | None = [output.type for output in runner.session.get_outputs()]
    except Exception:  # the runtime raises many types
        found = None
    steps.at(0)
    return found


def profile(runtime: Any, steps: Steps, request: dict[str, Any]) -> dict[str, float]:
    """Answer "profile": the seconds that kernels take in one run on `feeds`, see `by_kernel`.

    The model runs for `seconds`, within `PROFILED_RUNS`; the runtime writes what it does to a file
    in `folder`.
    """
    steps.at(1)
    options = {**request["options"], "profile": os.path.join(request["folder"], "runtime")}
    runner = Runner(runtime, request["model"], options)
    run = runner.bind(request["feeds"])
    least, most = PROFILED_RUNS
    start = time.perf_counter()
    for number in range(most):
        if number >= least and time.perf_counter() - start > request["seconds"]:
            break
        steps.at(1)
        run()
    with open(runner.session.end_profiling(), encoding="utf-8") as file:
        events = json.load(file)
    steps.at(0)
    return by_kernel(events)


def by_kernel(events: list[dict[str, Any]]) -> dict[str, float]:
    """Return the seconds of one run that kernels take, by their operator, the most first.

    `events` are those of the runtime's profile.  The first run allocates what later ones reuse, and
    does not count.  Raises `ValueError` if there is no other.
    """
    runs = [event for event in events if event["name"] == "model_run"]
    if len(runs) < PROFILED_RUNS[0]:
        raise ValueError("a profile needs two runs")
    first = min(runs, key=lambda event: float(event["ts"]))
    warm = first["ts"] + first["dur"]
    seconds: dict[str, float] = {}
    for event in events:
        is_kernel = event["cat"] == "Node" and event["name"].endswith("_kernel_time")
        if is_kernel and event["ts"] >= warm and event["args"]["op_name"] not in CONTROL:
            name = event["args"]["op_name"]
            seconds[name] = seconds.get(name, 0.0) + event["dur"] * 1e-6
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return {name: total / (len(runs) - 1) for name, total in ordered}


def time_all(runtime: Any, steps: Steps, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Answer "time": load all models, and time them interleaved on each set of inputs.

    Each of `models` comes with its sets, as many as all others, for each of which the same seconds
    are spent.  Returns for each model `{"samples": [[seconds per run, one per round], ...]}`, by
    set, or `{"failed": why}`.  With `processor_time`, these are seconds of it.
    """
    deadline = time.perf_counter() + request["limit_s"]
    results: list[dict[str, Any]] = [{} for _ in request["models"]]
    runners: dict[int, Runner] = {}
    for index, (model, _) in enumerate(request["models"]):
        steps.at(index + 1)
        try:
            runners[index] = Runner(runtime, model, request["options"])
        except Exception as error:  # the runtime raises many types; each costs one model
            results[index] = {"failed": reason(error)}
    samples: dict[int, list[list[float]]] = {index: [] for index in runners}
    all_feeds = list(zip(*(sets for _, sets in request["models"]), strict=True))
    for number, feeds in enumerate(all_feeds):
        fed = [(index, runner, feeds[index]) for index, runner in runners.items()]
        now = time.perf_counter()
        until = now + (deadline - now) / (len(all_feeds) - number)
        found, failed = time_on(fed, steps, request, until)
        for index, text in failed.items():
            results[index] = {"failed": text}
            del runners[index], samples[index]
        for index, those in found.items():
            samples[index].append(those)
    for index, each in samples.items():
        results[index] = {"samples": each}
    steps.at(0)
    return results


def time_on(
    fed: list[tuple[int, Runner, dict[str, Any]]],
    steps: Steps,
    request: dict[str, Any],
    deadline: float,
) -> tuple[dict[int, list[float]], dict[int, str]]:
    """Time models by number, each on one set of inputs, round by round; which failed, and why.

    There are as many rounds as fit into `seconds`, and `min_rounds` in any case; where these take
    longer than `long_s`, as many as fit into that, and `few_rounds` in any case.

    Rounds come in pairs, a random order and then its reverse: two models run A B B A, so that
    neither gains from a drift of the clock or from the other's caches.
    """
    clock = time.process_time if request["processor_time"] else time.perf_counter
    runs: dict[int, Callable[[], Any]] = {}
    lengths: dict[int, float] = {}
    failed: dict[int, str] = {}
    for index, runner, feeds in fed:
        steps.at(index + 1)
        try:
            runs[index] = runner.bind(feeds)
            for _ in range(WARM_UP_RUNS):
                lengths[index] = time_once(runs[index], 1, clock)
                if lengths[index] > request["seconds"] / 10 / len(fed):
                    break
        except Exception as error:
            runs.pop(index, None)
            failed[index] = reason(error)
    sample = min(SAMPLE_SECONDS, request["seconds"] / (10 * max(1, len(fed))))
    repeats = {i: max(1, min(10_000, round(sample / max(lengths[i], 1e-7)))) for i in runs}
    samples: dict[int, list[float]] = {index: [] for index in runs}
    generator = random.Random(request["seed"])
    order: list[int] = list(runs)
    rounds, start, longest = 0, time.perf_counter(), 0.0
    gc.disable()
    while runs:
        now = time.perf_counter()
        spent = now - start
        least = request["few_rounds" if spent >= request["long_s"] else "min_rounds"]
        enough = rounds >= least and spent >= request["seconds"]
        if enough or now + longest > deadline:
            break
        if rounds % 2:
            order.reverse()
        else:
            generator.shuffle(order)
        for index in order[:]:
            steps.at(index + 1)
            try:
                samples[index].append(time_once(runs[index], repeats[index], clock))
            except Exception as error:
                failed[index] = reason(error)
                del runs[index], samples[index]
                order.remove(index)
        rounds += 1
        longest = max(longest, time.perf_counter() - now)
    gc.enable()
    failed.update((index, NO_TIME) for index, those in samples.items() if not those)
    return {index: those for index, those in samples.items() if those}, failed


def time_once(run: Callable[[], Any], repeats: int, clock: Callable[[], float]) -> float:
    """Return the mean length of `repeats` runs in a row, in seconds of `clock`."""
    start = clock()
    for _ in range(repeats):
        run()
    return (clock() - start) / repeats


def main(bookmark: str) -> None:
    """Answer requests until the parent is gone."""
    steps = Steps(bookmark)  # before the greeting, after which the parent removes the file's name
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    channel = os.fdopen(os.dup(1), "wb")
    silence = open(os.devnull, "r+b")  # noqa: SIM115 - stays open as long as the process
    os.dup2(silence.fileno(), 1)  # the runtime's prints must not mix with the answers
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def listen() -> None:
        # A thread of its own, which detects the parent's end in the middle of a run, too.
        try:
            while True:
                requests.put(receive(sys.stdin.buffer))
        except BaseException as error:
            os._exit(not isinstance(error, EOFError))

    threading.Thread(target=listen, daemon=True).start()
    setup = requests.get()
    limit_memory(setup["memory_limit"])
    try:
        import onnxruntime as runtime  # noqa: PLC0415 - its absence is an answer
    except Exception as error:
        send(channel, {"failed": f"onnxruntime cannot be imported: {reason(error)}"})
        return
    providers = list(runtime.get_available_providers())
    send(channel, {"result": {"version": runtime.__version__, "providers": providers}})
    handlers = {
        **{"run": run_all, "each": run_each, "types": load_types, "time": time_all},
        "profile": profile,
    }
    while True:
        request = requests.get()
        # Ends this process even if it hangs inside the runtime and its parent is gone.
        faulthandler.dump_traceback_later(request["limit_s"] + 5, exit=True, file=silence)
        try:
            answer: dict[str, Any] = {"result": handlers[request["kind"]](runtime, steps, request)}
        except Exception as error:
            answer = {"failed": reason(error)}
        faulthandler.cancel_dump_traceback_later()
        del request
        gc.collect()
        send(channel, answer)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    finally:
        os._exit(1)  # the listening thread must not hold up the end
