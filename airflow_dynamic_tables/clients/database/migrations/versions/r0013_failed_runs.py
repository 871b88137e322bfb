"""Add failed scheduled runs, so that a table with consecutive failures is suspended."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "dt_failed_runs",
        sa.Column("table_name", sa.String(767), primary_key=True),
        sa.Column("run", sa.String(767), primary_key=True),
        sa.Column("noted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("counts", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("dt_failed_runs")
