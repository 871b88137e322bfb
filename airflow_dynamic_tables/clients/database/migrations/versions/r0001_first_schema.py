"""The first schema: databases and tables of the ``sql`` catalog, stages and refreshes of the ledger."""

import sqlalchemy as sa
from alembic import op

from airflow_dynamic_tables.clients.database.tables import UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create everything."""
    op.create_table(
        "dt_databases",
        sa.Column("catalog", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("catalog", "name"),
    )
    op.create_table(
        "dt_refreshes",
        sa.Column("token", sa.String(length=255), nullable=False),
        sa.Column("table_name", sa.String(length=767), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("schedule_time", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("data_timestamp", UtcDateTime(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("snapshot", sa.String(length=64), nullable=True),
        sa.Column("partitions", sa.JSON(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("files", sa.BigInteger(), nullable=True),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.Column("sources", sa.JSON(), nullable=False),
        sa.Column("application_id", sa.String(length=255), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("token"),
    )
    op.create_index("dt_refreshes_started", "dt_refreshes", ["started_at"], unique=False)
    op.create_index("dt_refreshes_table_started", "dt_refreshes", ["table_name", "started_at"], unique=False)
    op.create_table(
        "dt_stages",
        sa.Column("token", sa.String(length=255), nullable=False),
        sa.Column("table_name", sa.String(length=767), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("format", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("partitions", sa.JSON(), nullable=False),
        sa.Column("opened_at", UtcDateTime(), nullable=False),
        sa.Column("lease_until", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("token"),
    )
    op.create_index("dt_stages_state", "dt_stages", ["state"], unique=False)
    op.create_index("dt_stages_table_state", "dt_stages", ["table_name", "state"], unique=False)
    op.create_table(
        "dt_table_locks", sa.Column("table_name", sa.String(length=767), nullable=False), sa.PrimaryKeyConstraint("table_name")
    )
    op.create_table(
        "dt_tables",
        sa.Column("catalog", sa.String(length=255), nullable=False),
        sa.Column("database", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("catalog", "database", "name"),
    )


def downgrade() -> None:
    """Drop everything."""
    op.drop_table("dt_tables")
    op.drop_table("dt_table_locks")
    op.drop_index("dt_stages_table_state", table_name="dt_stages")
    op.drop_index("dt_stages_state", table_name="dt_stages")
    op.drop_table("dt_stages")
    op.drop_index("dt_refreshes_table_started", table_name="dt_refreshes")
    op.drop_index("dt_refreshes_started", table_name="dt_refreshes")
    op.drop_table("dt_refreshes")
    op.drop_table("dt_databases")
