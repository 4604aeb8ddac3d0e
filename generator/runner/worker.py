"""A worker process on this machine: runs the chunks that it is sent, one after the other."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from xflow.generator.runner.journal import entry, write_entry
from xflow.generator.runner.outcome import Outcome, execute, pack, unpack
from xflow.generator.runner.source import source_digest


def serve(connection: Connection, folder: Path | None, source: str) -> None:
    """Run chunks until the other end closes, writing each outcome into the journal at once.

    So a result is not lost if the parent process ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(EOFError, OSError):  # the parent has gone
        while True:
            key, chunk = unpack(connection.recv_bytes())
            if source_digest() != source:
                outcome = Outcome(None, "the program's source changed while the job ran")
            else:
                outcome = execute(chunk)
            data = pack(outcome)
            if folder is not None and not outcome.error:
                try:
                    write_entry(folder / key, entry(outcome))
                except Exception as error:
                    data = pack(replace(outcome, result=None, error=str(error)))
            connection.send_bytes(data)
