"""Store the states of sources as changes of their partitions, and the refresh that made each partition of a table."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_NAMES = ("table_name", "source", "partition")
_LENGTHS = {"table_name": 767, "source": 767, "partition": 2048}

_STATES = sa.table("dt_source_states", *map(sa.column, ("token", "source", "table_name", "reading")))
_STATE = sa.table(
    "dt_source_states", sa.column("token"), sa.column("source"), sa.column("partitions", sa.JSON), sa.column("unsettled", sa.JSON)
)
_REFRESHES = sa.table("dt_refreshes", *map(sa.column, ("token", "table_name", "started_at")))


def upgrade() -> None:
    """Create the tables and convert the states, oldest first. The partitions that existing refreshes made stay unknown."""
    op.create_table(
        "dt_source_partitions",
        *(sa.Column(name, sa.String(length=_LENGTHS[name]), nullable=False) for name in _NAMES),
        sa.Column("reading", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=True),
        sa.Column("unsettled", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint(*_NAMES, "reading"),
    )
    op.create_table(
        "dt_made_partitions",
        sa.Column("table_name", sa.String(length=767), nullable=False),
        sa.Column("partition", sa.String(length=2048), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(length=255), nullable=True),
        sa.Column("recipe", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("table_name", "partition"),
    )
    op.add_column("dt_refreshes", sa.Column("restores", sa.Integer(), nullable=True))
    op.add_column("dt_source_states", sa.Column("reading", sa.Integer(), nullable=True))
    op.add_column("dt_source_states", sa.Column("table_name", sa.String(length=767), nullable=True))
    _convert(op.get_bind())
    with op.batch_alter_table("dt_source_states") as states:
        states.alter_column("table_name", existing_type=sa.String(length=767), nullable=False)
        states.drop_column("partitions")
        states.drop_column("unsettled")
    op.create_index("dt_source_states_reading", "dt_source_states", ["table_name", "source", "reading"])


def _convert(connection: sa.Connection) -> None:
    of_refreshes = sa.select(_STATE.c.token, _STATE.c.source, _REFRESHES.c.table_name, _STATE.c.partitions, _STATE.c.unsettled)
    oldest_first = of_refreshes.join(_REFRESHES, _REFRESHES.c.token == _STATE.c.token).order_by(_REFRESHES.c.started_at)
    seen: dict[tuple[str, str], dict[str, tuple[str | None, bool]]] = {}
    numbers: dict[tuple[str, str], int] = {}
    added = sa.table("dt_source_partitions", *map(sa.column, (*_NAMES, "reading", "fingerprint", "unsettled")))
    for token, source, table, partitions, unsettled in connection.execute(oldest_first).all():
        key, reading = (table, source), None
        if partitions is not None:
            reading = numbers[key] = numbers.get(key, 0) + 1
            now: dict[str, tuple[str | None, bool]] = {name: (told, False) for name, told in partitions.items()}
            now |= {name: (partitions.get(name), True) for name in unsettled or ()}
            before = seen.get(key, {})
            names = [
                name for name in before.keys() | now.keys() if before.get(name, (None, False)) != now.get(name, (None, False))
            ]
            rows = [(*key, name, reading, *now.get(name, (None, False))) for name in names]
            if rows:
                connection.execute(added.insert(), [dict(zip(added.c.keys(), row, strict=True)) for row in rows])
            seen[key] = now
        of_state = (_STATES.c.token == token) & (_STATES.c.source == source)
        connection.execute(sa.update(_STATES).where(of_state).values(table_name=table, reading=reading))
    connection.execute(sa.delete(_STATES).where(_STATES.c.table_name.is_(None)))


def downgrade() -> None:
    """Drop what was added; the states are unknown then."""
    op.drop_index("dt_source_states_reading", "dt_source_states")
    with op.batch_alter_table("dt_source_states") as states:
        states.add_column(sa.Column("partitions", sa.JSON(none_as_null=True), nullable=True))
        states.add_column(sa.Column("unsettled", sa.JSON(), nullable=True))
        states.drop_column("reading")
        states.drop_column("table_name")
    op.drop_column("dt_refreshes", "restores")
    op.drop_table("dt_made_partitions")
    op.drop_table("dt_source_partitions")
