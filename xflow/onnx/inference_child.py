"""The process of `xflow.onnx.inference`: runs ONNX's shape inference on the models that it is sent.

It is a script of its own (`python -P inference_child.py BYTES SECONDS`) and imports nothing but the
standard library and onnx. Requests come through stdin and answers leave through what was stdout,
each behind its length (8 bytes, little-endian), an empty one at first. A request is `1` or `0`,
whether the contents of shapes are followed, and a model; an answer is `+` and the model, or `-` and
why there is none.
"""

import contextlib
import os
import struct
import sys
from typing import BinaryIO

import onnx
import onnx.shape_inference

LENGTH = struct.Struct("<Q")


def main() -> None:
    """Answer requests until there are no more."""
    extra, seconds = map(int, sys.argv[1:])
    requests = sys.stdin.buffer
    # What the libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    send(answers, b"")
    while True:
        head = requests.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return
        request = requests.read(*LENGTH.unpack(head))
        limit(extra, seconds)
        send(answers, answer_to(request))


def send(channel: BinaryIO, message: bytes) -> None:
    """Write one message with its length in front."""
    channel.write(LENGTH.pack(len(message)) + message)
    channel.flush()


def answer_to(request: bytes) -> bytes:
    """The model with the types of its values, or why inference fails."""
    for contents in (True, False):
        if contents and request[:1] == b"0":
            continue
        try:
            inferred = onnx.shape_inference.infer_shapes(
                request[1:], check_type=False, strict_mode=False, data_prop=contents
            )
            data: bytes = inferred.SerializeToString()
            return b"+" + data
        except MemoryError:
            reason = "it takes too much memory"
        except Exception as error:  # inference throws what its C++ side throws
            reason = str(error) or type(error).__name__
            break
    return b"-" + reason.encode(errors="replace")


def limit(extra: int, seconds: int) -> None:
    """Let this process take so many bytes and seconds more, where the system can do so.

    Its parent ends it in time, too, unless it has been killed itself.
    """
    try:
        import resource  # noqa: PLC0415 - does not exist on Windows
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        used = int(sum(os.times()[:2]))
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (used + seconds + 1, hard))
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status") as file:
        (taken,) = (int(line.split()[1]) * 1024 for line in file if line.startswith("VmData:"))
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (taken + extra, hard))


if __name__ == "__main__":
    main()
