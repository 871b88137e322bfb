"""What it takes to speak to a server: its JDBC driver, and a password that stands in no plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_dynamic_tables.jobs.drivers.base import Driver


def password_for(who: str, variable: str | None, driver: Driver) -> str | None:
    """What the plan calls by the name of an environment variable; ``None`` when it names none.

    :param who: needs it, for messages.
    :raises ValueError: when it is not there.
    """
    if variable is None:
        return None
    password = driver.password(variable)
    if password is None:
        raise ValueError(
            f"environment variable {variable} with the password of {who} is not set; in cluster mode hand it to the driver, for "
            "example as a Kubernetes secret"
        )
    return password


@contextmanager
def needing(jdbc_driver: str | None, who: str, driver: Driver) -> Iterator[None]:
    """Say how to get a JDBC driver when the body fails for want of it.

    :param who: needs it, for messages.
    """
    try:
        yield
    except Exception as error:
        if jdbc_driver is None or not re.search(rf"ClassNotFoundException\W+{re.escape(jdbc_driver)}", str(error)):
            raise
        raise ValueError(f"{who} needs the JDBC driver {jdbc_driver}; {driver.how_to_add_jars}") from error
