"""Selection of small files: partitions that have too many, and files to merge."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from airflow_dynamic_tables.core.partitions import PartitionSet

_MB = 1024 * 1024

_File = TypeVar("_File")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of compaction; sizes in bytes.

    A partition is due if it has more than ``many`` files smaller than ``small``. They are merged to files of about ``target``, at
    least four into one unless there are fewer, so that rows are not rewritten repeatedly. ``most`` is the input of one commit, in
    which a file counts at least as ``opening``; it is limited because a concurrent refresh takes precedence and discards the
    work. Where a partition is a folder, all of its files are rewritten, up to ``whole``.
    """

    many: int = 20
    small: int = 32 * _MB
    target: int = 128 * _MB
    most: int = 256 * _MB
    whole: int = 1024 * _MB
    opening: int = _MB // 4

    def cost(self, size: int) -> int:
        """Return the cost of reading a file, for ``most``; opening a tiny file takes longer than reading it."""
        return max(size, self.opening)


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of one or more compaction commits: ``files`` with ``bytes`` were merged into ``made`` files.

    ``left`` describes what was not compacted despite too many small files, and why.
    """

    files: int = 0
    made: int = 0
    bytes: int = 0
    left: tuple[str, ...] = ()

    def __add__(self, other: Compacted) -> Compacted:
        files, made = self.files + other.files, self.made + other.made
        return Compacted(files, made, self.bytes + other.bytes, (*self.left, *other.left))


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The files of a partition, and the number of ``small`` ones that may be merged.

    ``is_due`` is whether there are too many, and ``why_not`` why they are not compacted anyway.
    """

    partition: Mapping[str, str | None]
    files: int
    small: int
    bytes: int
    is_due: bool
    why_not: str | None = None


def rounds(sizes: Iterable[tuple[Mapping[str, str | None], int]], limits: Limits) -> list[PartitionSet]:
    """Return partitions with too many small files, grouped by commit; those with the most files first.

    :param sizes: the partition and size in bytes of every file.
    """
    small: dict[tuple[tuple[str, str | None], ...], list[int]] = {}
    for spec, size in sizes:
        if size < limits.small:
            small.setdefault(tuple(spec.items()), []).append(limits.cost(size))
    due = sorted((spec for spec, costs in small.items() if len(costs) > limits.many), key=lambda spec: -len(small[spec]))
    return [PartitionSet.of(map(dict, group)) for group in _groups(due, lambda spec: sum(small[spec]), limits.most)]


def bundles(
    files: Iterable[_File], size: Callable[[_File], int], kind: Callable[[_File], Hashable | None], limits: Limits
) -> list[list[_File]]:
    """Group files of a partition for merging: files of one kind, with a total size up to the target.

    :param kind: ``None`` for a file that is kept; called only for files that this commit may read.
    """
    of_kind: dict[Hashable, list[_File]] = {}
    cost = 0
    for file in files:
        cost += limits.cost(size(file))
        if cost > limits.most and of_kind:
            break  # the next commit merges the others
        if (known := kind(file)) is not None:
            of_kind.setdefault(known, []).append(file)
    bundled = chain.from_iterable(_groups(group, size, limits.target) for group in of_kind.values())
    return [bundle for bundle in bundled if len(bundle) > 1]


def _groups(items: Iterable[_File], size: Callable[[_File], int], most: int) -> Iterator[list[_File]]:
    """Group items in order, up to a total size, with at least one item per group."""
    group: list[_File] = []
    total = 0
    for item in items:
        if group and total + size(item) > most:
            yield group
            group = []
            total = 0
        group.append(item)
        total += size(item)
    if group:
        yield group
