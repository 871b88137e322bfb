"""Add the state of every source as read by a refresh."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; it has no rows for refreshes of earlier releases."""
    op.create_table(
        "dt_source_states",
        sa.Column("token", sa.String(length=255), nullable=False),
        sa.Column("source", sa.String(length=767), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=True),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("schema", sa.Text(), nullable=True),
        sa.Column("partitions", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("token", "source"),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("dt_source_states")
