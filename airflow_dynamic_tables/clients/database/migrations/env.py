"""Alembic's entry point: runs the migrations on the connection from ``Database.upgrade``."""

from alembic import context

from airflow_dynamic_tables.clients.database.engine import VERSION_TABLE
from airflow_dynamic_tables.clients.database.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    include_name=lambda name, kind, _parents: kind != "table" or str(name).startswith("dt_"),
)
with context.begin_transaction():
    context.run_migrations()
