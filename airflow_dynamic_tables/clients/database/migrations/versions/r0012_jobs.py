"""Add jobs: refreshes that were requested and run asynchronously."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "dt_jobs",
        sa.Column("id", sa.String(length=64), primary_key=True),
        sa.Column("caller", sa.String(length=255), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("wish", sa.JSON(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255)),
        sa.Column("digest", sa.String(length=64), nullable=False),
    )
    op.create_index("dt_jobs_caller_key", "dt_jobs", ["caller", "idempotency_key"], unique=True)
    op.create_index("dt_jobs_accepted", "dt_jobs", ["accepted_at", "id"])
    op.create_table(
        "dt_job_refreshes",
        sa.Column("job_id", sa.String(length=64), primary_key=True),
        sa.Column("table_name", sa.String(length=767), primary_key=True),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(length=255)),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("cluster", sa.JSON(), nullable=False),
        sa.Column("error", sa.Text()),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("dt_job_refreshes")
    op.drop_table("dt_jobs")
