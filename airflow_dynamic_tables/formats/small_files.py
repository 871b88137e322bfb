"""Small files: when a partition has too many of them, and which of them become one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from airflow_dynamic_tables.core.tables.partitions import PartitionSet

_MB = 1024 * 1024

_File = TypeVar("_File")


@dataclass(frozen=True, slots=True)
class Limits:
    """What is too many, and how much a compaction does at once; sizes in bytes.

    A partition is due when it has more than ``many`` files that are smaller than ``small``. They become files of about
    ``target``: at least four become one, unless there are no more, so that no row is written again and again. ``most`` is how
    much one commit reads, where a file counts for ``opening`` at least: a refresh that comes meanwhile has its way, and what was
    read is lost then. Where a partition leads to a folder, all of its files are written anew, up to ``whole``.
    """

    many: int = 20
    small: int = 32 * _MB
    target: int = 128 * _MB
    most: int = 256 * _MB
    whole: int = 1024 * _MB
    opening: int = _MB // 4

    def cost(self, size: int) -> int:
        """What reading a file of that size counts for ``most``: of a tiny one, opening it takes longer than its rows."""
        return max(size, self.opening)


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Compacted:
    """How many ``files`` of how many ``bytes`` became how few others (``made``), in one commit or in several.

    ``left`` says what stayed as it is though it has too many small files, and why.
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
    """The files of a partition, and how many of them are ``small`` and may become few.

    ``is_due`` says whether these are too many; ``why_not`` why they stay all the same, if they do.
    """

    partition: Mapping[str, str | None]
    files: int
    small: int
    bytes: int
    is_due: bool
    why_not: str | None = None


def rounds(sizes: Iterable[tuple[Mapping[str, str | None], int]], limits: Limits) -> list[PartitionSet]:
    """Partitions with too many small files, those together that one commit compacts; those with the most files come first.

    :param sizes: bytes of every file, with the partition that it is of.
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
    """Those of the files of a partition that become one each: of the same kind, and together not larger than a file is to be.

    :param kind: ``None`` for a file that stays as it is; asked only of files that this commit may read.
    """
    of_kind: dict[Hashable, list[_File]] = {}
    cost = 0
    for file in files:
        cost += limits.cost(size(file))
        if cost > limits.most and of_kind:
            break  # the next commit takes the others
        if (known := kind(file)) is not None:
            of_kind.setdefault(known, []).append(file)
    bundled = chain.from_iterable(_groups(group, size, limits.target) for group in of_kind.values())
    return [bundle for bundle in bundled if len(bundle) > 1]


def _groups(items: Iterable[_File], size: Callable[[_File], int], most: int) -> Iterator[list[_File]]:
    """Items in their order, as many together as are not larger than that, at least one."""
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
