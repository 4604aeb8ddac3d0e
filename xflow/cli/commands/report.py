"""`xflow report`: writes an HTML page from the report of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode, ReportError


def add(commands: Commands[Parser]) -> None:
    """Add `report`."""
    summary = "make a page of a report, to be looked at in a browser"
    parser = add_command(commands, "report", summary, "xflow report REPORT.json [--html FILE]")
    parser.add_argument("report", metavar="REPORT.json", help="of a run with --report")
    parser.add_argument("--html", metavar="FILE", help="where it goes (REPORT.html)")
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Write the page for a report, beside it unless somewhere else is asked for."""
    from xflow.onnx import files
    from xflow.pipeline.log import read_report
    from xflow.report.page import page

    output = options.html or str(Path(options.report).with_suffix(".html"))
    files.check_output(output, options.report)
    report, _ = read_report(options.report)
    try:
        # A text of JSON may hold half of a character, which no file in UTF-8 can.
        text = page(report).encode("utf-8", "backslashreplace").decode("utf-8")
    except Exception as error:  # a report may be damaged in any way
        reason = " ".join(f"{type(error).__name__} {error}".split())[:120]
        raise ReportError(f"the report makes no sense ({reason})", options.report) from None
    files.write_text_atomically(text, output)
    if not options.quiet:
        print(f"wrote {output}")
    return ExitCode.OK
