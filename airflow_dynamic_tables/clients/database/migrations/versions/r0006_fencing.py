"""Number stages in the order of their opening, and distinguish those whose commit may still succeed."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_COUNT = """
UPDATE dt_stages SET ordinal = (
    SELECT count(*) FROM dt_stages AS earlier
    WHERE earlier.table_name = dt_stages.table_name
    AND (earlier.opened_at < dt_stages.opened_at
         OR (earlier.opened_at = dt_stages.opened_at AND earlier.token <= dt_stages.token))
)
"""


def upgrade() -> None:
    """Number existing stages by time; stages being aborted are fenced again, which is harmless."""
    op.add_column("dt_stages", sa.Column("ordinal", sa.Integer(), nullable=False, server_default="0"))
    op.execute(_COUNT)
    op.execute("UPDATE dt_stages SET state = 'FENCING' WHERE state = 'ABORTING'")


def downgrade() -> None:
    """Drop the numbers; the previous release fences every stage that it aborts."""
    op.execute("UPDATE dt_stages SET state = 'ABORTING' WHERE state = 'FENCING'")
    op.drop_column("dt_stages", "ordinal")
