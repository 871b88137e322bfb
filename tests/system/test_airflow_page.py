"""The page in Airflow's UI, in a browser: below a path prefix, in both themes, and what its buttons do."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

import httpx
import pytest
from playwright.sync_api import Browser, Frame, Locator, Page, expect, sync_playwright

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.source_changes import DirtyPartitions
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import QuarantinedError
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from tests.support.airflow import Airflow, Components, embedded, until
from tests.support.ports import free_port
from tests.support.pyarrow_job import write_days, write_numbers
from tests.support.suite import missing_service

pytestmark = [pytest.mark.system, pytest.mark.large]

HOSTILE = "<img src=x onerror=\"document.title='taken over'\">"

TABLES = f"""
defaults: {{catalog: lake, database: sales, freshness: 1 day}}
dynamic_tables:
- {{name: numbers, query: SELECT 1 AS x, comment: {json.dumps(HOSTILE)}, expectations: [{{row_count: {{min: 2}}}}]}}
- {{name: copied, query: SELECT x FROM numbers}}
- name: days
  partitioned_by: [ds]
  frozen: ds < '2024-01-02'
  options: {{partition.fields.ds.date-formatter: yyyy-MM-dd}}
  expectations: [{{row_count: {{min: 2}}}}]
  query: SELECT '2024-03-01' AS ds, 1 AS n
"""
MANY = 1_000
ALL = MANY + 3
PAINTED_SECONDS = 2.0
DAG = "dynamic_table__lake__sales__numbers"
DAYS = {"2024-01-01": (1, 2), "2024-01-02": (1, 2, 3), "2024-01-04": (1, 2), "2024-01-03": (1,)}


@dataclass(frozen=True)
class Site:
    """An api-server below a prefix, with the tokens of its users."""

    airflow: Airflow
    url: str
    tokens: dict[str, str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    airflow = embedded(tmp_path_factory.mktemp("page") / "home")
    airflow.define("sales.yaml", TABLES)
    airflow.check("dags", "reserialize")
    every = airflow.home / "every"
    shutil.copytree(airflow.definitions, every)
    many = "\n".join(f"- {{name: t{number:04}, query: SELECT {number} AS x}}" for number in range(MANY))
    head = "defaults: {catalog: lake, database: many, freshness: 1 hour}\ndynamic_tables:\n"
    (every / "many.yaml").write_text(head + many)
    fill(airflow)
    port, passwords = free_port(), {user: secrets.token_hex(16) for user in ("admin", "viewer")}
    (airflow.home / "passwords.json").write_text(json.dumps(passwords))
    url = f"http://127.0.0.1:{port}/prod"
    airflow.environ |= {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,viewer:viewer",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(airflow.home / "passwords.json"),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(64),
        "AIRFLOW__DYNAMIC_TABLES__DEFINITIONS": str(every),
    }
    components = Components(airflow)
    try:
        components.start("api-server")
        with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
            until("API", lambda: answers(client))
            yield Site(airflow, url, {user: token(client, user, password) for user, password in passwords.items()})
    finally:
        components.stop()


def answers(client: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return client.get("/api/v2/version").is_success
    return False


def token(client: httpx.Client, user: str, password: str) -> str:
    answer = client.post("/auth/token", json={"username": user, "password": password})
    return str(answer.raise_for_status().json()["access_token"])


def fill(airflow: Airflow) -> None:
    """Make two versions of a table and leave a third refresh in quarantine; the same with days of another table."""
    tables = load_definitions(airflow.definitions / "sales.yaml").tables
    numbers = tables[TableIdentifier("lake", "sales", "numbers")]
    now = datetime.now(UTC)
    with airflow.workspace() as workspace:
        for age, rows in ((3, (1, 2)), (2, (1, 2, 3)), (1, (1,))):
            with suppress(QuarantinedError):
                request = RefreshRequest(numbers, {}, now - timedelta(days=age), f"r{age}", f"o{age}")
                run(workspace, request, partial(write_numbers, numbers=rows))
        ensure(workspace, tables[TableIdentifier("lake", "sales", "copied")])
        days = tables[TableIdentifier("lake", "sales", "days")]
        for day, written in DAYS.items():
            partition = PartitionSet.of([{"ds": day}])
            request = RefreshRequest(days, {}, now, day, day, partitions=partition, replaces_frozen=True)
            with suppress(QuarantinedError):
                run(workspace, request, partial(write_days, days={day: written}))
        dirty = DirtyPartitions(PartitionSet.of([{"ds": "2024-01-04"}]), 1)
        workspace.ledger.record_dirty(days.identifier, dirty, now - timedelta(hours=2), since=0)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        missing_service("needs Chromium: apt-get install -y chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


Open = Callable[..., Page]
Theme = Literal["light", "dark"]


@pytest.fixture
def open_page(site: Site, browser: Browser) -> Iterator[Open]:
    """Open a path as a user. What a page reports as an error fails the test."""
    contexts, errors = [], []

    def opened(path: str, user: str = "admin", system: Theme = "light", airflow: Theme | None = None) -> Page:
        context = browser.new_context(color_scheme=system, viewport={"width": 1400, "height": 900})
        context.add_cookies([{"name": "_token", "value": site.tokens[user], "url": site.url}])
        if airflow:
            context.add_init_script(f"localStorage.setItem('theme', {airflow!r})")
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if "Security Policy" in message.text else None)
        page.goto(f"{site.url}{path}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []


def frame_of(page: Page) -> Frame:
    element = page.wait_for_selector("iframe[title^='Dynamic table']", timeout=60_000)
    frame = element.content_frame() if element is not None else None
    assert frame is not None
    return frame


def heading(place: Page | Frame, name: str) -> Locator:
    return place.get_by_role("heading", name=name, exact=True)


@pytest.mark.parametrize(
    ("system", "airflow", "theme"),
    [("light", None, "light"), ("dark", None, "dark"), ("light", "dark", "dark"), ("dark", "light", "light")],
)
def test_the_list_is_in_the_navigation_and_has_the_theme_of_airflow(
    open_page: Open, system: Theme, airflow: Theme | None, theme: Theme
) -> None:
    page = open_page("/plugin/dynamic-tables", system=system, airflow=airflow)
    frame = frame_of(page)
    expect(heading(frame, "Dynamic tables")).to_be_visible(timeout=60_000)
    expect(frame.locator("html")).to_have_attribute("data-theme", theme)
    expect(frame.locator("#tables tbody tr").first).to_be_visible(timeout=60_000)


def test_a_thousand_tables_need_two_requests_and_no_wait_for_the_first_paint(open_page: Open) -> None:
    painted = []
    for _ in range(3):
        page = open_page("/v3/page/index.html")
        expect(page.locator("#tables tbody tr")).to_have_count(ALL, timeout=60_000)
        entries = page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
        assert len([name for name in entries if "/v3/dynamic-tables" in name]) == 2, entries
        painted.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"))
    assert min(painted) <= PAINTED_SECONDS, painted


def test_search_filter_and_order(open_page: Open) -> None:
    page = open_page("/v3/page/index.html")
    rows = page.locator("#tables tbody tr")
    expect(rows).to_have_count(ALL, timeout=30_000)
    page.get_by_label("Search").fill("many t00")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Table").click()
    page.get_by_role("button", name="Table").click()
    expect(rows.first).to_contain_text("t0099")
    expect(page.locator("th[aria-sort='descending']")).to_have_text("Table")
    page.reload()
    expect(rows.first).to_contain_text("t0099", timeout=30_000)
    page.get_by_label("Search").fill("")
    page.get_by_label("State").select_option("Quarantined")
    expect(rows).to_have_count(2)
    expect(rows).to_contain_text(["lake.sales.numbers", "lake.sales.days"])


def test_the_tab_of_a_dag_shows_its_table_and_leads_out_of_its_frame(open_page: Open, site: Site) -> None:
    page = open_page(f"/dags/{DAG}/plugin/dynamic-table")
    frame = frame_of(page)
    expect(heading(frame, "lake.sales.numbers")).to_be_visible(timeout=30_000)
    frame.get_by_role("link", name="Open in Airflow").click()
    page.wait_for_url(f"{site.url}/dags/{DAG}", timeout=30_000)


def test_a_reloaded_page_shows_the_same_table(open_page: Open) -> None:
    page = open_page("/plugin/dynamic-tables")
    frame = frame_of(page)
    frame.get_by_label("Search").fill("sales numbers")
    frame.get_by_role("link", name="lake.sales.numbers").click()
    expect(heading(frame_of(page), "lake.sales.numbers")).to_be_visible(timeout=30_000)
    page.wait_for_url("**/table.html?table=lake.sales.numbers*")
    page.reload()
    expect(heading(frame_of(page), "lake.sales.numbers")).to_be_visible(timeout=60_000)


def test_text_of_users_stays_text(open_page: Open) -> None:
    page = open_page("/v3/page/table.html?table=lake.sales.numbers")
    expect(page.get_by_text(HOSTILE)).to_be_visible(timeout=30_000)
    expect(page).to_have_title("lake.sales.numbers")
    assert page.locator("#comment img").count() == 0


def test_every_tab_by_keyboard(open_page: Open) -> None:
    page = open_page("/v3/page/table.html?table=lake.sales.numbers")
    expect(page.get_by_role("tab", name="Refreshes")).to_be_visible(timeout=30_000)
    page.get_by_role("tab", name="Refreshes").focus()
    told = {
        "Refreshes": "v2",
        "Partitions": "The table is not partitioned.",
        "Lineage": "This table",
        "Expectations": "row_count: 1 rows; at least 2 expected",
        "Versions": "Current",
        "Cost": "Time saved",
        "Definition": "SELECT 1 AS x",
    }
    for name, text in told.items():
        panel = page.get_by_role("tabpanel", name=name)
        expect(panel).to_contain_text(text, timeout=30_000)
        expect(page.get_by_role("tab", name=name)).to_be_focused()
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", "the focus is visible"
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Refreshes")).to_have_attribute("aria-selected", "true")


def test_a_narrow_window(open_page: Open) -> None:
    page = open_page("/v3/page/table.html?table=lake.sales.days")
    page.set_viewport_size({"width": 400, "height": 500})
    expect(page.get_by_role("tabpanel", name="Refreshes")).to_contain_text("v3", timeout=30_000)
    widths = page.locator(".reason").evaluate_all("each => each.map((one) => one.offsetWidth)")
    assert min(widths) > 150, "a reason is readable"
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    page.get_by_role("button", name="Refresh…").click()
    dialog = page.get_by_role("dialog", name="Refresh lake.sales.days")
    expect(dialog).to_contain_text("Expected duration", timeout=30_000)
    expect(dialog.get_by_role("button", name="Refresh", exact=True)).to_be_in_viewport()


def test_buttons_do_what_they_say(open_page: Open, site: Site) -> None:
    page = open_page("/v3/page/table.html?table=lake.sales.numbers")
    page.get_by_role("button", name="Refresh…").click()
    dialog = page.get_by_role("dialog", name="Refresh lake.sales.numbers")
    expect(dialog).to_contain_text("Expected duration", timeout=30_000)
    page.keyboard.press("Escape")

    page.get_by_role("tab", name="Versions").click()
    page.get_by_role("button", name="Roll back to version 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(page.get_by_text("Rolled back to version 1.")).to_be_visible(timeout=30_000)
    assert [row["x"] for row in site.airflow.rows("lake.sales.numbers")] == [1, 2]

    page.get_by_role("tab", name="Expectations").click()
    page.get_by_role("button", name="Abort…").click()
    page.get_by_role("dialog").get_by_role("button", name="Abort").click()
    expect(page.get_by_text("No refresh is in quarantine.")).to_be_visible(timeout=30_000)
    assert site.airflow.stages("lake.sales.numbers") == []

    page.get_by_role("button", name="Suspend…").click()
    page.get_by_label("Reason").fill("moved")
    page.get_by_role("dialog").get_by_role("button", name="Suspend").click()
    expect(page.get_by_role("button", name="Resume…")).to_be_visible(timeout=30_000)
    expect(page.get_by_label("Where the delay began")).to_contain_text("moved")
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Suspend…")).to_be_visible(timeout=30_000)


def test_a_day_in_quarantine_is_published_and_made_in_the_calendar(open_page: Open, site: Site) -> None:
    page = open_page("/v3/page/table.html?table=lake.sales.days#partitions")
    january = page.get_by_role("region", name="January 2024")
    expect(january.get_by_role("img", name="2024-01-01: frozen, 2 rows")).to_be_visible(timeout=30_000)
    expect(january.get_by_role("img", name="2024-01-02: made, 3 rows")).to_be_visible()
    expect(january.get_by_role("img", name="2024-01-03: quarantined")).to_be_visible()
    expect(january.get_by_role("img", name="2024-01-04: dirty, 2 rows")).to_be_visible()
    expect(page.get_by_role("tabpanel", name="Partitions").get_by_role("status")).to_contain_text(
        "Dirty partitions: 1, as of 2 h"
    )

    page.get_by_role("tab", name="Expectations").click()
    page.get_by_role("button", name="Publish…").click()
    dialog = page.get_by_role("dialog", name="Publish the refresh in quarantine")
    expect(dialog).to_contain_text("row_count: 1 rows; at least 2 expected")
    expect(dialog).to_contain_text("It replaces ds=2024-01-03.")
    dialog.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Published.")).to_be_visible(timeout=30_000)
    expect(page.get_by_text("No refresh is in quarantine.")).to_be_visible(timeout=30_000)
    page.get_by_role("tab", name="Partitions").click()
    expect(january.get_by_role("img", name="2024-01-03: made, 1 rows")).to_be_visible(timeout=30_000)
    assert len(site.airflow.rows("lake.sales.days")) == sum(map(len, DAYS.values()))


def test_a_refresh_shows_its_plan_first_and_is_followed_to_its_end(open_page: Open, site: Site) -> None:
    headers = {"Authorization": f"Bearer {site.tokens['admin']}"}
    runs = f"/api/v2/dags/{DAG}/dagRuns"
    with httpx.Client(base_url=site.url, timeout=60, trust_env=False, headers=headers) as client:
        client.patch(f"/api/v2/dags/{DAG}", json={"is_paused": True}).raise_for_status()
        page = open_page("/v3/page/table.html?table=lake.sales.numbers")
        page.get_by_role("button", name="Refresh…").click()
        dialog = page.get_by_role("dialog", name="Refresh lake.sales.numbers")
        expect(dialog).to_contain_text("Expected duration", timeout=30_000)
        dialog.get_by_role("button", name="Refresh", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text("paused", timeout=30_000)
        client.patch(f"/api/v2/dags/{DAG}", json={"is_paused": False}).raise_for_status()
        dialog.get_by_role("button", name="Refresh", exact=True).click()
        expect(page.get_by_role("status").first).to_contain_text(re.compile("The refresh is (accepted|running)"), timeout=30_000)
        (requested,) = client.get(runs).raise_for_status().json()["dag_runs"]
        assert requested["dag_run_id"].startswith("rest__")
        link = page.get_by_role("link", name="Open the run in Airflow").get_attribute("href")
        assert str(link).endswith(f"/prod/dags/{DAG}/runs/{requested['dag_run_id']}")
        client.patch(f"{runs}/{requested['dag_run_id']}", json={"state": "failed"}).raise_for_status()
        # Airflow skips a task that has not begun.
        told = "The refresh ended: failed. Its run was marked as failed, or failed, before its task began."
        expect(page.get_by_text(told)).to_be_visible(timeout=60_000)
        client.patch(f"/api/v2/dags/{DAG}", json={"is_paused": True}).raise_for_status()


def test_a_viewer_is_told_why_a_button_does_nothing(open_page: Open) -> None:
    page = open_page("/v3/page/table.html?table=lake.sales.numbers", user="viewer")
    page.get_by_role("button", name="Suspend…").click()
    page.get_by_role("dialog").get_by_role("button", name="Suspend").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("You may not change lake.sales.numbers")


def test_a_user_who_is_logged_out_is_told_so(open_page: Open) -> None:
    page = open_page("/v3/page/table.html?table=lake.sales.numbers")
    expect(page.get_by_role("tab", name="Versions")).to_be_visible(timeout=30_000)
    page.context.clear_cookies()
    page.get_by_role("tab", name="Versions").click()
    expect(page.get_by_role("tabpanel", name="Versions")).to_contain_text("You are logged out")
