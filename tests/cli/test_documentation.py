"""docs: static pages of all tables, whose links lead to pages, and whose texts stay texts."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from tests.cli.conftest import Run

HOSTILE = "<script>alert(1)</script> & co"


class Page(HTMLParser):
    """The text of a page, and the targets of its links."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.text = ""
        self.targets: list[str] = []
        self.tags: set[str] = set()
        self.feed(file.read_text())
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.targets += [value for name, value in attributes if name == "href" and value is not None]

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


def test_every_table_has_a_page(dynamic_tables: Run, project: Path, tmp_path: Path) -> None:
    file = project / "dags" / "definitions" / "sales.yaml"
    owned = "name: total\n    owner: finance\n    expectations: [{name: some, predicate: revenue > 0}]\n"
    commented = f"comment: '{HOSTILE}'\n    columns: {{revenue: in euros}}"
    file.write_text(file.read_text().replace("name: total\n", owned).replace("comment: Revenue per day", commented))
    folder = tmp_path / "site"
    dynamic_tables("docs", str(folder))
    pages = {page.relative_to(folder): Page(page) for page in folder.rglob("*.html")}
    assert {str(name) for name in pages} == {
        "index.html",
        *(f"tables/lake.sales.{table}.html" for table in ("daily_revenue", "total")),
    }
    for name, page in pages.items():
        assert "script" not in page.tags
        for target in page.targets:
            assert (folder / name.parent / unquote(target)).exists(), (name, target)
    index = pages[Path("index.html")]
    assert HOSTILE in index.text
    assert "raw.orders parquet lake.sales.daily_revenue" in index.text.replace("lake.raw", "raw")
    total = pages[Path("tables/lake.sales.total.html")]
    assert "Reads lake.sales.daily_revenue" in total.text
    assert "some revenue > 0 fail" in total.text
    assert "Owner finance" in total.text
    assert "The columns are known after the first refresh." in total.text
    assert "Read by lake.sales.total" in pages[Path("tables/lake.sales.daily_revenue.html")].text


def test_a_table_with_columns(dynamic_tables: Run, tmp_path: Path, project: Path) -> None:
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text(file.read_text().replace("comment: Revenue per day", "columns: {revenue: in euros}"))
    dynamic_tables("refresh", "daily_revenue")
    dynamic_tables("docs", str(tmp_path / "site"))
    page = Page(tmp_path / "site" / "tables" / "lake.sales.daily_revenue.html")
    assert "revenue bigint in euros lake.raw.orders.amount" in page.text
    assert "Version 1" in page.text
    dynamic_tables("suspend", "daily_revenue")
    dynamic_tables("docs", str(tmp_path / "site"))
    assert "suspended" in Page(tmp_path / "site" / "index.html").text


def test_an_earlier_documentation_is_replaced_and_nothing_else(dynamic_tables: Run, project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    dynamic_tables("docs", str(folder))
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text(file.read_text().partition("  - name: total")[0])
    dynamic_tables("docs", str(folder))
    assert not (folder / "tables" / "lake.sales.total.html").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".site")] == []
    other = tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("mine")
    done = dynamic_tables("docs", str(other))
    assert done.code == 1
    assert "is not a documentation that this command wrote" in done.err
    assert (other / "index.html").read_text() == "mine"
