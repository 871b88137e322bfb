"""Scheduled runs that failed are counted, so that a table whose refreshes fail in a row is suspended."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "dt_failed_runs",
        sa.Column("table_name", sa.String(767), primary_key=True),
        sa.Column("run", sa.String(767), primary_key=True),
        sa.Column("noted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("counts", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("dt_failed_runs")
