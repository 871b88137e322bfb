"""Add the results of a refresh's expectations."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; it is null for refreshes of earlier releases."""
    op.add_column("dt_refreshes", sa.Column("expectations", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("dt_refreshes", "expectations")
