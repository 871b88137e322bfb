"""Settings of Sphinx. ``make docs`` builds the site without a network; each warning is an error."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]

# The API reference imports Airflow, which creates files in its home.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-of-docs-"))

project = PROJECT["name"]
author = "The developers of airflow-dynamic-tables"
version = release = PROJECT["version"]
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of Airflow and Python have no pages here

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True

html_theme = "furo"
html_title = "Dynamic tables"
html_logo = "integration-logos/dynamic-tables.svg"
html_favicon = html_logo
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["versions.js"]
html_extra_path = ["metrics"]
html_copy_source = True
html_show_copyright = False
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        *("sidebar/scroll-start.html", "sidebar/brand.html", "versions.html", "sidebar/search.html"),
        *("sidebar/navigation.html", "sidebar/scroll-end.html"),
    ]
}

_ENTRY = re.compile(r"^(?:.* <)?([\w/-]+)>?$")


def link_to_source(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links that leave the documentation lead to the files of this version in the repository."""
    base = f"{PROJECT['urls']['Source']}/blob/{'main' if 'dev' in version else f'v{version}'}"
    above = "../" * docname.count("/")
    source[0] = re.sub(rf"\]\({re.escape(above)}\.\./([^)\s]+)\)", lambda found: f"]({base}/{found[1]})", source[0])


def write_llms(app: Sphinx, error: Exception | None) -> None:
    """Write ``llms.txt``, the list of all pages, and each page as Markdown beside its HTML."""
    if error is not None or app.builder.name != "html":
        return
    lines = [f"# {project} {version}", "", f"> {PROJECT['description']}", ""]
    for caption, pages in chapters():
        lines += [f"## {caption}", ""]
        for page in pages:
            source = Path(app.env.doc2path(page))
            shutil.copy(source, app.outdir / f"{page}{source.suffix}")
            lines.append(f"- [{app.env.titles[page].astext()}]({page}{source.suffix})")
        lines.append("")
    (app.outdir / "llms.txt").write_text("\n".join(lines))


def chapters() -> Iterator[tuple[str, list[str]]]:
    """Yield the captions of the first page and the pages below each."""
    for tree in re.findall(r"^:::\{toctree\}\n(.*?)^:::$", (DOCS / "index.md").read_text(), re.MULTILINE | re.DOTALL):
        caption = re.search(r"^:caption: (.*)$", tree, re.MULTILINE)
        entries = (found[1] for line in tree.splitlines() if (found := _ENTRY.match(line)))
        if caption:
            yield caption[1], list(entries)


def setup(app: Sphinx) -> None:
    """Connect the two functions above to the steps of a build."""
    app.connect("source-read", link_to_source)
    app.connect("build-finished", write_llms)
