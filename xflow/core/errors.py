"""The errors a user can cause, and the exit code that each of them ends the program with."""

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Every exit code of the program; the one place where they are numbered."""

    OK = 0
    ERROR = 1
    USAGE = 2
    VALIDATION_FAILED = 3
    NOT_FASTER = 4
    CHANGED = 5
    DIFFERENT = 6
    SLOWER = 7
    REFUTED = 10
    UNKNOWN = 11
    NOT_DERIVED = 12
    NOT_CERTIFIED = 13
    INTERRUPTED = 130


class XflowError(Exception):
    """An expected failure, told to the user in one sentence.

    `what` says what went wrong, `where` names the file, node or rule concerned, and `do` says
    what the user can do about it.  None of the three ends in a full stop.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.ERROR

    def __init__(self, what: str, where: str = "", do: str = "") -> None:
        super().__init__(what, where, do)
        self.what = what
        self.where = where
        self.do = do

    def __str__(self) -> str:
        """Return the whole sentence on one line: `where: what; do`."""
        sentence = f"{self.where}: {self.what}" if self.where else self.what
        if self.do:
            sentence = f"{sentence}; {self.do}"
        return printable(" ".join(sentence.split()))


def printable(text: str) -> str:
    """`text` with what a terminal would act on, or has no sign for, spelled out.

    Names in a model may hold any characters. Line feeds stay.
    """
    return "".join(
        char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text
    )


class ModelError(XflowError):
    """The model cannot be read, is not valid, or cannot be handled."""


class UnfeedableInput(ModelError):  # noqa: N818 - a property of the model, not a mishap
    """An input of the model is of a type or rank for which no values can be made up."""


class OutputError(XflowError):
    """The output cannot be written where it was asked for."""


class RuleFileError(XflowError):
    """A rule file cannot be read, or a rule in it is malformed."""


class UnknownRuleError(XflowError):
    """A rule was named that does not exist."""


class VerificationError(XflowError):
    """A rule of the database could not be proved again."""


class MissingSolver(XflowError):  # noqa: N818 - something absent, not a mishap
    """A solver that a command needs is not installed."""


class MissingEngine(XflowError):  # noqa: N818 - something absent, not a mishap
    """What was asked for to run a job is not installed."""


class WorkerError(XflowError):
    """A child process (a measurement, a proof) crashed or ran out of time or memory."""


class ReportError(XflowError):
    """A report cannot be read, or is none."""


class NotCertified(XflowError):  # noqa: N818 - a verdict, not a mishap
    """A model does not follow from another by the steps of a log."""

    exit_code = ExitCode.NOT_CERTIFIED


class ProviderError(XflowError):
    """The execution provider asked for is not available on this machine."""


class UsageError(XflowError):
    """The command line contradicts itself or holds a value that makes no sense."""

    exit_code = ExitCode.USAGE


class ValidationFailed(XflowError):  # noqa: N818 - a verdict, not a mishap
    """The optimized model does not agree with the input; nothing was written."""

    exit_code = ExitCode.VALIDATION_FAILED


class NotFaster(XflowError):  # noqa: N818 - a verdict, not a mishap
    """The optimized model is not faster than the input, and the user asked for a failure then."""

    exit_code = ExitCode.NOT_FASTER


class Different(XflowError):  # noqa: N818 - a verdict, not a mishap
    """Two models that were to be the same are not."""

    exit_code = ExitCode.DIFFERENT


class Slower(XflowError):  # noqa: N818 - a verdict, not a mishap
    """A model is slower than another by more than was allowed."""

    exit_code = ExitCode.SLOWER


class SizeError(ValueError):
    """A size expression is malformed, or lacks a value that is needed: a mistake in the caller."""


class ShapeError(ValueError):
    """An operator does not accept these shapes or attributes."""
