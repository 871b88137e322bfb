"""Stages are counted in the order of their opening, and told apart by whether their commit may still land."""

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
    """Count the stages that are there by their clocks; what was being given up is fenced once more, which does no harm."""
    op.add_column("dt_stages", sa.Column("ordinal", sa.Integer(), nullable=False, server_default="0"))
    op.execute(_COUNT)
    op.execute("UPDATE dt_stages SET state = 'FENCING' WHERE state = 'ABORTING'")


def downgrade() -> None:
    """Forget the order; the release before fences whatever it gives up."""
    op.execute("UPDATE dt_stages SET state = 'ABORTING' WHERE state = 'FENCING'")
    op.drop_column("dt_stages", "ordinal")
