"""Functions, partitions and statistics of the ``sql`` catalog."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create their tables."""
    op.create_table("dt_functions", *_name(), *_value(), sa.PrimaryKeyConstraint("catalog", "database", "name"))
    op.create_table("dt_statistics", *_name(), *_value(), sa.PrimaryKeyConstraint("catalog", "database", "name"))
    op.create_table(
        "dt_partitions",
        *_name(),
        sa.Column("spec", sa.String(length=2048), nullable=False),
        *_value(),
        sa.PrimaryKeyConstraint("catalog", "database", "name", "spec"),
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("dt_partitions", "dt_statistics", "dt_functions"):
        op.drop_table(table)


def _name() -> tuple["sa.Column[str]", ...]:
    return tuple(sa.Column(column, sa.String(length=255), nullable=False) for column in ("catalog", "database", "name"))


def _value() -> "tuple[sa.Column[object]]":
    return (sa.Column("value", sa.JSON(), nullable=False),)
