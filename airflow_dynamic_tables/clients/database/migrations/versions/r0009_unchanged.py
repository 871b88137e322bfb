"""What has to be known of a refresh before another one may be left out."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; of refreshes of earlier releases nobody knows it."""
    op.add_column("dt_refreshes", sa.Column("recipe", sa.String(length=64), nullable=True))
    op.add_column("dt_source_states", sa.Column("unsettled", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("dt_source_states", "unsettled")
    op.drop_column("dt_refreshes", "recipe")
