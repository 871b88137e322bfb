"""Add the bytes of the sources of refreshes and the number of refreshes of a record, for the saved cost."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. Records of earlier releases count as one refresh."""
    op.add_column("dt_refreshes", sa.Column("source_bytes", sa.BigInteger(), nullable=True))
    op.add_column("dt_refreshes", sa.Column("occurrences", sa.Integer(), nullable=False, server_default="1"))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("dt_refreshes", "occurrences")
    op.drop_column("dt_refreshes", "source_bytes")
