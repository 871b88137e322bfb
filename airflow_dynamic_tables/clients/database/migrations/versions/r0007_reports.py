"""Add whether the version of a refresh was reported to its scheduler."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; refreshes of earlier releases need no report."""
    op.add_column("dt_refreshes", sa.Column("report", sa.String(length=16), nullable=True))
    op.create_index("dt_refreshes_report", "dt_refreshes", ["report", "finished_at"])


def downgrade() -> None:
    """Drop the column."""
    op.drop_index("dt_refreshes_report", "dt_refreshes")
    op.drop_column("dt_refreshes", "report")
