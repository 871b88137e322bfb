"""Add the versions of the tables that the expectations of refreshes refer to."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("dt_refreshes", sa.Column("referenced", sa.JSON(), nullable=False, server_default="{}"))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("dt_refreshes", "referenced")
