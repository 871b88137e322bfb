"""Add the periods in which watched tables were late, so that shares of time within freshness are known."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the last check of watched tables, and the table of periods."""
    op.add_column("dt_watched_tables", sa.Column("checked_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("dt_watched_tables", sa.Column("late_from", sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        "dt_late_periods",
        sa.Column("table_name", sa.String(767), primary_key=True),
        sa.Column("since", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("is_certain", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    """Drop the table and the columns."""
    op.drop_table("dt_late_periods")
    op.drop_column("dt_watched_tables", "late_from")
    op.drop_column("dt_watched_tables", "checked_at")
