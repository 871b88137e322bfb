"""Add the information required to skip a refresh of unchanged sources."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; they are null for refreshes of earlier releases."""
    op.add_column("dt_refreshes", sa.Column("recipe", sa.String(length=64), nullable=True))
    op.add_column("dt_source_states", sa.Column("unsettled", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("dt_source_states", "unsettled")
    op.drop_column("dt_refreshes", "recipe")
