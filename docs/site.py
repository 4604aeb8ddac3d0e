"""Gathers the pages of the site: `make site`.

README is the first page. Links into the source tree become plain text: the site has no sources.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory
from xflow.rewriting.text import parse_rules

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "build" / "site-source"


def main() -> None:
    """Write the pages anew."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    (TARGET / "index.md").write_text(_plain(readme), encoding="utf-8")
    for page in sorted((ROOT / "docs").iterdir()):
        if page.suffix == ".md":
            (TARGET / page.name).write_text(_plain(page.read_text(encoding="utf-8")), "utf-8")
        elif page.suffix in (".png", ".svg"):
            shutil.copy(page, TARGET)
    (TARGET / "catalogue.md").write_text(_catalogue(), encoding="utf-8")


def _plain(text: str) -> str:
    """A page without links to what is not on the site."""

    def link(match: re.Match[str]) -> str:
        on_site = match[2].startswith(("http", "#")) or re.fullmatch(
            r"[\w-]+\.(md|png|svg)(#.*)?", match[2]
        )
        return match[0] if on_site else match[1]

    return re.sub(r"\[([^\]]*)\]\(([^)]*)\)", link, text)


def _catalogue() -> str:
    """All rules, by their files."""
    parts = [
        "# The rules\n",
        "All that come with xflow, each proved. `xflow rules show NAME` says more.\n",
    ]
    for path in sorted(default_directory().glob("*.rules")):
        rules = parse_rules(path.read_text(encoding="utf-8"), str(path), checked=False)
        parts.append(f"\n## {path.stem}\n\n| rule | equation | where |\n|---|---|---|")
        parts += [_row(rule) for rule in rules]
    return "\n".join(parts) + "\n"


def _row(rule: Rule) -> str:
    arrow = "=>" if rule.reverse is None else "<=>"
    where = ", ".join(rule.where)
    return f"| {rule.name} | `{rule.lhs}` {arrow} `{rule.rhs}` | {f'`{where}`' if where else ''} |"


if __name__ == "__main__":
    main()
