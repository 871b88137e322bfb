"""Add the id of the installation, with which it marks the folders of its tables."""

from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table with a new id."""
    installation = op.create_table("dt_installation", sa.Column("id", sa.String(length=64), primary_key=True))
    op.bulk_insert(installation, [{"id": str(uuid4())}])


def downgrade() -> None:
    """Drop the id; the next upgrade creates another one."""
    op.drop_table("dt_installation")
