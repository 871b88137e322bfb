"""Drop the statistics of tables of the ``sql`` catalog, which are read from the tables only."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_NAMES = ("catalog", "database", "name")


def upgrade() -> None:
    """Drop the table."""
    op.drop_table("dt_statistics")


def downgrade() -> None:
    """Create the table again, without rows."""
    columns = (sa.Column(name, sa.String(length=255), primary_key=True) for name in _NAMES)
    op.create_table("dt_statistics", *columns, sa.Column("value", sa.JSON(), nullable=False))
