"""Up to when what a refresh read was complete, and whether no tick is missing before its data timestamp."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_NAMES = ("unbroken", "complete_until", "watermark")


def upgrade() -> None:
    """Add the columns; of refreshes of earlier releases nothing of it is known."""
    op.add_column("dt_refreshes", sa.Column("unbroken", sa.Boolean(), nullable=True))
    op.add_column("dt_refreshes", sa.Column("complete_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("dt_refreshes", sa.Column("watermark", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop them."""
    for name in _NAMES:
        op.drop_column("dt_refreshes", name)
