"""Add the dirty partitions that the last search of a table found, and the last search before each refresh."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the columns. Whether existing partitions are dirty is unknown until the next search."""
    op.create_table(
        "dt_dirty_findings",
        sa.Column("table_name", sa.String(767), primary_key=True),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("partitions", sa.JSON(), nullable=True),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("before", sa.String(32), nullable=True),
    )
    op.add_column("dt_stages", sa.Column("search", sa.Integer(), nullable=True))
    op.add_column("dt_made_partitions", sa.Column("search", sa.Integer(), nullable=True))


def downgrade() -> None:
    """Drop the columns and the table."""
    op.drop_column("dt_made_partitions", "search")
    op.drop_column("dt_stages", "search")
    op.drop_table("dt_dirty_findings")
