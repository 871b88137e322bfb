"""A stage can make a table, which has a name of its own until the commit."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; no earlier stage made a table."""
    op.add_column("dt_stages", sa.Column("creates", sa.String(767)))


def downgrade() -> None:
    """Drop it."""
    with op.batch_alter_table("dt_stages") as table:
        table.drop_column("creates")
