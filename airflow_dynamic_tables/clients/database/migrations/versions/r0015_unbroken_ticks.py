"""Add whether all ticks before a refresh's data timestamp are covered, and up to when its sources were complete."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_NAMES = ("unbroken", "complete_until", "watermark")


def upgrade() -> None:
    """Add the columns, null for refreshes of earlier releases, and an index by which the latest tick of a table is found."""
    op.add_column("dt_refreshes", sa.Column("unbroken", sa.Boolean(), nullable=True))
    op.add_column("dt_refreshes", sa.Column("complete_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("dt_refreshes", sa.Column("watermark", sa.DateTime(timezone=True), nullable=True))
    op.create_index("dt_refreshes_table_schedule", "dt_refreshes", ["table_name", "schedule_time", "started_at"])


def downgrade() -> None:
    """Drop the columns and the index."""
    op.drop_index("dt_refreshes_table_schedule", "dt_refreshes")
    for name in _NAMES:
        op.drop_column("dt_refreshes", name)
