"""The database of rules on disk: a folder of ``*.rules`` files."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from xflow.core.errors import RuleFileError, UnknownRuleError
from xflow.core.pause_gc import without_collector
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules


def default_directory() -> Path:
    """The folder of rules that is installed with the package."""
    return Path(str(files("xflow.rules")))


def load_rules(directory: str | Path) -> list[Rule]:
    """All rules of a folder, in the order of the files' names; none for an empty folder.

    Raises RuleFileError for a missing folder, an unreadable file, a malformed rule, and for two
    rules of one name. Rules of the package, which its tests prove, are not checked at every rank:
    that takes seconds. They are read once in a process, as long as their files stay as they are.
    """
    folder = Path(directory)
    if not folder.is_dir():
        what = "this is not a folder of rules" if folder.exists() else "there is no such folder"
        raise RuleFileError(what, str(folder))
    paths = tuple(sorted(folder.glob("*.rules")))
    if folder.resolve() != default_directory().resolve():
        return list(_read(paths, checked=True))
    try:
        stamps = tuple((stat.st_mtime_ns, stat.st_size) for stat in map(Path.stat, paths))
    except OSError as error:
        raise RuleFileError(f"a file cannot be read ({error})", str(folder)) from None
    return list(_of_the_package(paths, stamps))


@lru_cache(maxsize=1)
def _of_the_package(paths: tuple[Path, ...], stamps: tuple[object, ...]) -> tuple[Rule, ...]:
    return tuple(_read(paths, checked=False))


@without_collector
def _read(paths: Iterable[Path], *, checked: bool) -> list[Rule]:
    rules: list[Rule] = []
    homes: dict[str, Path] = {}
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RuleFileError(f"the file cannot be read ({error})", str(path)) from None
        for rule in parse_rules(text, str(path), checked=checked):
            if rule.name in homes:
                what = f"there is another rule {rule.name} in {homes[rule.name]}"
                raise RuleFileError(what, str(path))
            homes[rule.name] = path
            rules.append(rule)
    return rules


def stanza_names(path: Path) -> list[str]:
    """The names of the stanzas of a file; none if there is no such file. Raises RuleFileError."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise RuleFileError(f"the file cannot be read ({error})", str(path)) from None
    lines = (line.split(maxsplit=1) for line in text.splitlines())
    return [words[1].strip() for words in lines if len(words) > 1 and words[0] == "rule"]


def count_stanzas(directory: str | Path) -> int:
    """In how many stanzas the rules of a folder are written. Raises RuleFileError."""
    return sum(len(stanza_names(path)) for path in sorted(Path(directory).glob("*.rules")))


def select_rules(
    rules: Sequence[Rule], only: Iterable[str] = (), skip: Iterable[str] = ()
) -> list[Rule]:
    """The rules called `only` (all if that is empty) but not those called `skip`.

    Raises UnknownRuleError, with names that are close, for a name that no rule has.
    """
    only, skip = set(only), set(skip)
    names = [rule.name for rule in rules]
    for name in sorted((only | skip) - set(names)):
        cases = [each for each in names if each.startswith(f"{name}-")]
        close = cases[:3] or difflib.get_close_matches(name, names, n=3)
        advice = f"did you mean {' or '.join(close)}?" if close else "see xflow rules list"
        raise UnknownRuleError("there is no such rule", f"rule {name}", advice)
    return [rule for rule in rules if (not only or rule.name in only) and rule.name not in skip]
