"""Add the tables whose freshness is watched, and the notices of late ones, so that each lateness is notified once."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "dt_watched_tables",
        sa.Column("table_name", sa.String(767), primary_key=True),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "dt_late_notices",
        sa.Column("table_name", sa.String(767), primary_key=True),
        sa.Column("callback", sa.String(64), primary_key=True),
        sa.Column("claimed_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("notified_at", sa.DateTime(timezone=True), nullable=True),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("dt_late_notices")
    op.drop_table("dt_watched_tables")
