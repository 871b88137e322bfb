"""Add stages that create a table, which has a temporary name until the commit."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; stages of earlier releases created no tables."""
    op.add_column("dt_stages", sa.Column("creates", sa.String(767)))


def downgrade() -> None:
    """Drop the column."""
    with op.batch_alter_table("dt_stages") as table:
        table.drop_column("creates")
