"""Add the state of every published time partition."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "dt_published_partitions",
        sa.Column("table_name", sa.String(length=767), primary_key=True),
        sa.Column("partition", sa.String(length=767), primary_key=True),
        sa.Column("token", sa.String(length=255), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("done", sa.String(length=255)),
        sa.Column("offered", sa.String(length=255)),
        sa.Column("told", sa.String(length=255)),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("dt_published_partitions")
