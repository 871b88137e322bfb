"""The places in Airflow's UI that show the page; every Airflow process imports this module."""

from __future__ import annotations

from typing import Any

# Relative to Airflow's base URL, so that they are right at any path prefix.
_FOLDER = "v3/page"

VIEWS: list[dict[str, Any]] = [
    {
        "name": "Dynamic tables",
        "href": f"{_FOLDER}/index.html",
        "destination": "nav",
        "category": "browse",
        "url_route": "dynamic-tables",
        "icon": f"{_FOLDER}/icon.svg",
        "icon_dark_mode": f"{_FOLDER}/icon-dark.svg",
    },
    {
        "name": "Dynamic table",
        "href": f"{_FOLDER}/table.html?workflow={{DAG_ID}}",
        "destination": "dag",
        "url_route": "dynamic-table",
        "icon": f"{_FOLDER}/icon.svg",
        "icon_dark_mode": f"{_FOLDER}/icon-dark.svg",
    },
]
"""External views, as Airflow reads them from a plugin: the list in the navigation, and the table on its DAG."""
