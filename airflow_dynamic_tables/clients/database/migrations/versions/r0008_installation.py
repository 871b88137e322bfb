"""Which installation this is, so that it can mark the folders of its tables."""

from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Give the installation an identity."""
    installation = op.create_table("dt_installation", sa.Column("id", sa.String(length=64), primary_key=True))
    op.bulk_insert(installation, [{"id": str(uuid4())}])


def downgrade() -> None:
    """Forget it; the next upgrade gives another one."""
    op.drop_table("dt_installation")
