"""Write the derived parts of the documentation, between two marks on each page, and the index of the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from airflow_dynamic_tables.api.app import make_app
from airflow_dynamic_tables.api.desk import AppComponents
from airflow_dynamic_tables.cli.arguments import Argument
from airflow_dynamic_tables.cli.command_index import INDEX, Command, CommandGroup, all_commands, index, sections
from airflow_dynamic_tables.definitions.declarations.settings import DefaultsDeclaration
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.model import KEYS, Key
from airflow_dynamic_tables.get_provider_info import get_provider_info

DOCS = Path(__file__).parents[1] / "docs"
FIRST = ("name", "query", "freshness", "partitioned_by", "options", "comment", "expectations", "on_failure_callback", "format")
"""Keys with which a table can live for a long time; all others are below a fold."""

MANY = 6
"""Number of commands from which on an option is listed once for all of them."""

BEGIN, END = "<!-- scripts/write_reference.py writes from here -->", "<!-- to here -->"


def with_reference(name: str, page: str) -> str:
    """Return the text of a page with the current reference."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join((before + BEGIN, "", *PAGES[name](), "", END + after))


def keys() -> Iterator[str]:
    """Yield the reference of the keys of a dynamic table."""
    by_name = {each.name: each.key for each in KEYS if each.name in TableDeclaration.model_fields}
    others = {name: Key() for name in TableDeclaration.model_fields if name not in by_name} | by_name
    first = {name: others.pop(name) for name in FIRST}
    yield from _keys(first)
    yield from ("", "<details>", "<summary>All other keys of a table</summary>", "")
    yield from (*_keys({name: key for name, key in others.items() if key.part is None}), "", "</details>")
    yield from ("", "<details>", "<summary>Settings of Airflow, by its names; all may be in <code>defaults</code></summary>", "")
    settings = {name: key.part.owner for name, key in others.items() if key.part is not None}
    yield from _table(
        ("key", "meaning", "setting of the"),
        ((f"`{name}`", _meaning(name, others[name]), owner) for name, owner in settings.items()),
    )
    yield from ("", "</details>")


def _keys(keys: Mapping[str, Key]) -> Iterator[str]:
    defaults = DefaultsDeclaration.model_fields
    rows = ((f"`{name}`", _meaning(name, key), "yes" if name in defaults else "") for name, key in keys.items())
    return _table(("key", "meaning", "in `defaults`"), rows)


def _meaning(name: str, key: Key) -> str:
    said = _line(TableDeclaration.model_fields[name].description)
    return f"{said} [More]({key.see})" if key.see else said


def commands() -> Iterator[str]:
    """Yield the reference of the commands and their options."""
    found = list(all_commands())
    arguments = [argument for _, command in _single(found) for argument in command.arguments]
    shared = [each for each in arguments if arguments.count(each) >= MANY and each.flags[0].startswith("-")]
    once = [each for number, each in enumerate(shared) if each not in shared[:number]]
    yield from _table(("option of most commands", "meaning"), ((f"`{_written(each)}`", _cell(each.help)) for each in once))
    for title, members in sections(found).items():
        rows = (
            (f"`{name}`", command.help, "<br>".join(_argument(each) for each in command.arguments if each not in shared))
            for name, command in _single(members)
        )
        yield from ("", f"### Commands: {title}", "", *_table(("command", "purpose", "arguments and options"), rows))


def _single(members: Iterable[Command | CommandGroup]) -> Iterator[tuple[str, Command]]:
    for each in members:
        if isinstance(each, CommandGroup):
            yield from ((f"{each.name} {inner.name}", inner) for inner in each.commands)
        else:
            yield each.name, each


def _argument(argument: Argument) -> str:
    return f"`{_written(argument)}`: {_cell(argument.help)}"


def _written(argument: Argument) -> str:
    value = argument.options.get("metavar") or "|".join(argument.options.get("choices", ()))
    text = f"{', '.join(argument.flags)} {value}".strip() if argument.flags[0].startswith("-") else str(value)
    return text.replace("|", "\\|")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("%%", "%")


def settings() -> Iterator[str]:
    """Yield the reference of the options of Airflow's configuration."""
    options = get_provider_info()["config"]["dynamic_tables"]["options"]
    rows = (
        (
            f"`{name}`",
            _line(option["description"]),
            option["type"],
            f"`{option['default']}`" if option["default"] else "empty",
            option["version_added"],
        )
        for name, option in options.items()
    )
    return _table(("option", "meaning", "type", "default", "since"), rows)


class _NoAccess:
    """Only the routes are described; no request is answered."""

    security_schemes: Mapping[str, Mapping[str, Any]] = {}


def routes() -> Iterator[str]:
    """Yield the reference of the routes of the REST gateway, their parameters and the fields of bodies."""
    unused = cast(Any, None)
    schema = make_app(AppComponents(unused, unused, cast(Any, _NoAccess()), unused)).openapi()
    schemas = schema["components"]["schemas"]
    operations = [
        (method.upper(), path, operation)
        for path, methods in sorted(schema["paths"].items(), key=lambda item: item[0])
        for method, operation in methods.items()
    ]
    of_all = set.intersection(*(_refusals(operation) for _, _, operation in operations))
    yield from _table(("route", "purpose", "right", "response", "refusals"), (_route(*one, of_all) for one in operations))
    yield from ("", f"Every route can also respond with {', '.join(sorted(of_all))}; see [problems](#problems).", "")
    parameters: dict[tuple[str, ...], list[str]] = {}
    for method, path, operation in operations:
        for row in (*_parameters(operation, schemas), *_fields(operation, schemas)):
            parameters.setdefault(row, []).append(f"`{method} {_short(path)}`")
    rows = ((*row[:4], _routes(using)) for row, using in parameters.items())
    yield from _table(("parameter", "in", "type", "meaning", "of"), rows)


def _route(method: str, path: str, operation: Mapping[str, Any], of_all: set[str]) -> tuple[str, ...]:
    status, response = next((status, one) for status, one in operation["responses"].items() if int(status) < 400)
    model = response["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    purpose = f"{operation['summary']}. {_line(operation['description'])}"
    answer = f"`{model}`" if status == "200" else f"{status}, `{model}`"
    refusals = ", ".join(sorted(_refusals(operation) - of_all))
    return f"`{method} {_short(path)}`", purpose, operation["x-required-right"], answer, refusals


def _short(path: str) -> str:
    return path.replace("/v3/dynamic-tables/{table}/", "…/").replace("job_id", "jobId")


def _refusals(operation: Mapping[str, Any]) -> set[str]:
    return {status for status in operation["responses"] if int(status) >= 400}


def _parameters(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for each in operation.get("parameters", ()):
        name = each["name"].replace("job_id", "jobId")
        yield f"`{name}`", each["in"], _type(each["schema"], schemas), _described(each["schema"])


def _fields(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    if (body := operation.get("requestBody")) is not None:
        model = schemas[body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]]
        for name, field in model.get("properties", {}).items():
            needed = ", required" if name in model.get("required", ()) else ""
            yield f"`{name}`", f"body{needed}", _type(field, schemas), _described(field)


def _described(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    told = "" if default in (None, "", False) else f" Default: {default}."
    return _line(schema.get("description")) + told


def _type(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _type(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(each, schemas) for each in schema["anyOf"] if each != {"type": "null"})
    if schema["type"] == "array":
        return f"list of {_type(schema['items'], schemas)}"
    if "maximum" in schema:
        return f"{schema['type']}, {schema['minimum']:.0f} to {schema['maximum']:.0f}"
    return cast(str, schema["type"])


def _routes(using: list[str]) -> str:
    return ", ".join(using) if len(using) < 6 else "routes with it in their path"


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _line(text: str | None) -> str:
    return " ".join((text or "").replace("``", "`").split())


PAGES: Mapping[str, Callable[[], Iterator[str]]] = {
    "definitions.md": keys,
    "cli.md": commands,
    "airflow.md": settings,
    "rest.md": routes,
}
"""What is written on each page."""

if __name__ == "__main__":
    for name in PAGES:
        page = DOCS / name
        page.write_text(with_reference(name, page.read_text()))
    INDEX.write_text(index(), encoding="utf-8")
