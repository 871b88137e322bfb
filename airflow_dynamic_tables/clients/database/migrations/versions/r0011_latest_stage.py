"""Add an index by which the latest stage of a table is found."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the index."""
    op.create_index("dt_stages_table_ordinal", "dt_stages", ["table_name", "ordinal"])


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("dt_stages_table_ordinal", "dt_stages")
