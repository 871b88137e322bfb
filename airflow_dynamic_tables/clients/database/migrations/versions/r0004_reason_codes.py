"""Add the reason of a refresh as a code."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; it is null for refreshes of earlier releases."""
    op.add_column("dt_refreshes", sa.Column("reason_code", sa.String(length=32), nullable=True))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("dt_refreshes", "reason_code")
