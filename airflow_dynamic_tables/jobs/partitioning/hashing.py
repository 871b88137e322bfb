"""Murmur3 (x86, 32 bits, seed 0), the hash of Iceberg's buckets, as an expression of Spark's own.

Spark's ``hash`` is another one: it starts with 42 instead of 0, and takes the last bytes of a text in a way of its own. The hash
of one value is the start of the next, so a first value whose hash is 0 mends the start. The last bytes are added here.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit

_HASHED_TO_ZERO = -1693959553
"""The one int of which Spark's hash is 0."""

_MASK = 0xFFFFFFFF


def hash_of_long(value: Column) -> Column:
    """The hash of eight bytes, as a bigint of 32 bits without a sign; not null where the value is."""
    return _unsigned(F.hash(F.lit(_HASHED_TO_ZERO), value.cast("bigint")))


def hash_of_bytes(value: Column) -> Column:
    """The hash of any number of bytes, as a bigint of 32 bits without a sign; not null where the value is."""
    length = F.octet_length(value)
    whole = length - length % 4
    of_whole = _unsigned(F.hash(F.lit(_HASHED_TO_ZERO), F.substring(value, F.lit(1), whole)))
    rest = F.rpad(F.hex(F.substring(value, whole + 1, F.lit(3))), 6, "0")
    in_order = F.concat(F.substring(rest, 5, 2), F.substring(rest, 3, 2), F.substring(rest, 1, 2))
    mixed = _let(F.conv(in_order, 16, 10).cast("bigint"), _mixed_in)
    before = _let(_before_end(of_whole), lambda hashed: hashed.bitwiseXOR(whole.cast("bigint")))
    with_rest = _at_end(before.bitwiseXOR(mixed).bitwiseXOR(length.cast("bigint")))
    return F.when(length == whole, of_whole).otherwise(with_rest)


def _mixed_in(rest: Column) -> Column:
    """What the last one to three bytes change."""
    turned = _let(_times(rest, 0xCC9E2D51), lambda value: _low(F.shiftleft(value, 15)).bitwiseOR(F.shiftright(value, 17)))
    return _let(turned, lambda value: _times(value, 0x1B873593))


def _at_end(value: Column) -> Column:
    """Murmur's last step, which lets every bit decide every other."""
    first = _let(_let(value, lambda one: _folded(one, 16)), lambda one: _times(one, 0x85EBCA6B))
    second = _let(_let(first, lambda one: _folded(one, 13)), lambda one: _times(one, 0xC2B2AE35))
    return _let(second, lambda one: _folded(one, 16))


def _before_end(value: Column) -> Column:
    """What Murmur's last step made this of: the step backwards, with the inverse of each factor."""
    second = _let(_let(value, lambda one: _folded(one, 16)), lambda one: _times(one, 0x7ED1B41D))
    first = _let(_let(second, lambda one: _folded(one, 13, 26)), lambda one: _times(one, 0xA5CB9243))
    return _let(first, lambda one: _folded(one, 16))


def _folded(value: Column, *shifts: int) -> Column:
    for shifted in [F.shiftright(value, shift) for shift in shifts]:
        value = value.bitwiseXOR(shifted)
    return value


def _times(value: Column, factor: int) -> Column:
    """The low 32 bits of a product, in two parts: the whole one has 64, of which a bigint has 63."""
    high = F.shiftleft((value * F.lit(factor >> 16)).bitwiseAND(F.lit(0xFFFF)), 16)
    return _low(value * F.lit(factor & 0xFFFF) + high)


def _low(value: Column) -> Column:
    return value.bitwiseAND(F.lit(_MASK))


def _unsigned(value: Column) -> Column:
    return _low(value.cast("bigint"))


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """An expression in which a value stands more than once and is computed once."""
    return F.transform(F.array(value), body)[0]
