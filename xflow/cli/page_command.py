"""`xflow report`: a page from the report of a run."""

import argparse
from pathlib import Path

from xflow.core.errors import ExitCode, ReportError
from xflow.onnx import files
from xflow.pipeline.log import read_report
from xflow.report.page import page


def run(options: argparse.Namespace) -> ExitCode:
    """Write the page for a report, beside it unless somewhere else is asked for."""
    output = options.html or str(Path(options.report).with_suffix(".html"))
    files.check_output(output, options.report)
    report, _ = read_report(options.report)
    try:
        # A text of JSON may hold half of a character, which no file in UTF-8 can.
        text = page(report).encode("utf-8", "backslashreplace").decode("utf-8")
    except Exception as error:  # there is no end to what may be wrong with it
        reason = " ".join(f"{type(error).__name__} {error}".split())[:120]
        raise ReportError(f"the report makes no sense ({reason})", options.report) from None
    files.write_text_atomically(text, output)
    if not options.quiet:
        print(f"wrote {output}")
    return ExitCode.OK
