"""Read the pages of the repository as pages of the site.

Pages are written so that they also read well in the repository. Three things differ on the site: a few pages stand at
the root of the repository, links to files that are not pages lead nowhere there, and the tests that prove a guarantee
become footnotes.
"""

from __future__ import annotations

import os.path
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent

AT_THE_ROOT = {
    "security": "SECURITY.md",
    "contributing": "CONTRIBUTING.md",
    "architecture": "ARCHITECTURE.md",
    "changelog": "CHANGELOG.md",
}
"""Pages of the site whose text is a file at the root of the repository."""

_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_TESTS = re.compile(r"[ \n]*\((`tests/[^()`]*?`(?:,\s+`tests/[^`]*`)*)\)(\.?)")
_MERMAID = re.compile(r"^```mermaid\n.*?^```\n", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"^ *```.*?^ *```\n", re.DOTALL | re.MULTILINE)


def links_of_the_site(text: str, file: Path, docname: str) -> str:
    """Return the text with its relative links as seen from a page of the site.

    Links to files that the site doesn't show become plain text.
    """
    shown = {ROOT / path: name for name, path in AT_THE_ROOT.items()}
    shown |= {path: path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    shown |= {ROOT / "examples" / path.name: f"examples/{path.stem}" for path in (ROOT / "examples").glob("*.ipynb")}
    examples = ROOT / "examples"

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return match[0]
        path, _, anchor = target.partition("#")
        leads_to = (file.parent / path).resolve()
        if leads_to == ROOT / "README.md":
            page = "index"
        elif leads_to == examples:
            page = "examples"
        elif leads_to.parent == examples and leads_to.suffix == ".py":
            page, anchor = "examples", leads_to.stem.replace("_", "-")
        elif leads_to in shown:
            page = shown[leads_to]
        else:
            return words
        ending = ".ipynb" if leads_to.suffix == ".ipynb" else ".md"
        there = os.path.relpath(page, os.path.dirname(docname)) + ending
        return f"[{words}]({there}{'#' + anchor if anchor else ''})"

    return _outside_code(text, lambda prose: _LINK.sub(link, prose))


def tests_as_footnotes(text: str) -> str:
    """Return the text with each parenthesis that lists tests as a footnote."""
    notes: list[str] = []

    def footnote(match: re.Match[str]) -> str:
        notes.append(re.sub(r"\s+", " ", match[1]))
        return f"{match[2]}[^tests{len(notes)}]"

    text = _TESTS.sub(footnote, text)
    return text + "\n" + "".join(f"\n[^tests{number}]: {tests}\n" for number, tests in enumerate(notes, 1))


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    parts: list[str] = []
    place = 0
    for block in _CODE.finditer(text):
        parts += [change(text[place : block.start()]), block[0]]
        place = block.end()
    return "".join([*parts, change(text[place:])])


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Change the text of a page before it is parsed."""
    file = Path(app.env.doc2path(docname))
    if file.suffix != ".md":
        return
    if docname in AT_THE_ROOT:
        file = ROOT / AT_THE_ROOT[docname]
        source[0] = file.read_text(encoding="utf-8")
        app.env.note_dependency(str(file))
    source[0] = _MERMAID.sub(":::{picture} way_of_a_query\n:::\n", source[0])
    if docname == "guarantees":
        source[0] = tests_as_footnotes(source[0])
    source[0] = links_of_the_site(source[0], file, docname)
    source[0] = re.sub(r"\n\n( *```)$", r"\n\1", source[0], flags=re.MULTILINE)  # doctests end with an empty line


def copy_notebooks(app: Sphinx) -> None:
    """Copy the notebooks of the examples, since Sphinx reads pages in its folder only."""
    folder = DOCS / "examples"
    folder.mkdir(exist_ok=True)
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        copy = folder / notebook.name
        if not copy.exists() or copy.read_bytes() != notebook.read_bytes():
            shutil.copy(notebook, copy)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the handlers."""
    app.connect("builder-inited", copy_notebooks)
    app.connect("source-read", read)
    return {"parallel_read_safe": True}
