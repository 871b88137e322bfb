"""The one spelling of every value without parts, and which texts are values of a type."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.tables.types import DataType, Primitive

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})
_INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_NOT_FINITE = re.compile(r"(?P<sign>[-+]?)\.?(?:(?P<nan>nan)|inf(?:inity)?)", re.IGNORECASE)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T](?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?))?"
    r" ?(?P<offset>Z|[-+][0-9]{2}:[0-9]{2})?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_DIGITS = 100
"""Digits with which decimals are counted here: more than any decimal of Spark's has."""


def spelled(text: str, kind: DataType, zone: str) -> str:
    """The one spelling that a value has.

    :param zone: of a time without an offset.
    :raises ValueError: when the text is no value of that type.
    """
    if not isinstance(kind, Primitive) or kind.name not in _SPELLINGS:
        raise ValueError(f"nobody can write a value of type {kind}; give this table as 'sql'")
    return _SPELLINGS[kind.name](text, kind, zone)


def _boolean(text: str, kind: Primitive, _zone: str) -> str:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{text!r} is no {kind}; write true or false")
    return "true" if text.lower() in _TRUE else "false"


def _integer(text: str, kind: Primitive, _zone: str) -> str:
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is no {kind}; write a whole number")
    number, beyond = int(text), 1 << (_BITS[kind.name] - 1)
    if not -beyond <= number < beyond:
        raise ValueError(f"{text} is beyond {kind}, which reaches from {-beyond} to {beyond - 1}")
    return str(number)


def _decimal(text: str, kind: Primitive, _zone: str) -> str:
    precision, scale = kind.arguments
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is no {kind}; write a number such as 1.50")
    with localcontext(prec=_DIGITS):
        number = Decimal(text)
        try:
            exact = number.quantize(Decimal(1).scaleb(-scale))
        except InvalidOperation:
            exact = Decimal("Infinity")
        is_beyond = abs(exact) >= Decimal(10) ** (precision - scale)
        is_rounded = exact != number
    if is_beyond:
        raise ValueError(f"{text} is beyond {kind}, which has {precision - scale} digits before the point")
    if is_rounded:
        raise ValueError(f"{text} has more than the {scale} digits that {kind} has behind the point")
    return f"{abs(exact) if exact == 0 else exact:f}"


def _float(text: str, kind: Primitive, _zone: str) -> str:
    if special := _NOT_FINITE.fullmatch(text):
        return "NaN" if special["nan"] else f"{special['sign'].replace('+', '')}Infinity"
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is no {kind}; write a number such as 1.5, NaN or -Infinity")
    number = float(text)
    if kind.name == "double":
        if math.isinf(number):
            raise ValueError(f"{text} is beyond {kind}")
        return repr(number)
    try:
        single = _single(number)
    except OverflowError:
        raise ValueError(f"{text} is beyond {kind}") from None
    return next(repr(float(short)) for digits in range(1, 10) if _single(float(short := f"{single:.{digits}g}")) == single)


def _single(number: float) -> float:
    """The nearest number of single precision."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _text(text: str, kind: Primitive, _zone: str) -> str:
    if kind.arguments and len(text) > kind.arguments[0]:
        raise ValueError(f"{text!r} is longer than {kind}")
    return text


def _binary(text: str, kind: Primitive, _zone: str) -> str:
    try:
        return bytes.fromhex(text).hex().upper()
    except ValueError:
        raise ValueError(f"{text!r} is no {kind}; write hexadecimal digits such as CAFE") from None


def _date(text: str, kind: Primitive, _zone: str) -> str:
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text).isoformat()
    except ValueError:
        pass  # the 31st of a short month
    raise ValueError(f"{text!r} is no {kind}; write for example 2024-01-31")


def _local_time(text: str, kind: Primitive, _zone: str) -> str:
    time, offset = _parsed(text, kind)
    if offset is not None:
        raise ValueError(f"{text!r} has an offset, and a {kind} has none; remove it")
    return time.isoformat(" ")


def _instant(text: str, kind: Primitive, zone: str) -> str:
    time, offset = _parsed(text, kind)
    if offset is not None:
        return _in_zone(datetime.fromisoformat(f"{time.isoformat()}{offset}"), zone, text)
    instant = time.replace(tzinfo=ZoneInfo(zone))
    if instant.utcoffset() != instant.replace(fold=1).utcoffset():
        does_exist = instant.astimezone(UTC).astimezone(instant.tzinfo).replace(tzinfo=None) == time
        what = "is there twice" if does_exist else "does not exist"
        raise ValueError(f"{text} {what} in {zone}, where clocks are changed; write an offset, for example {text}+01:00")
    return _in_zone(instant, zone, text)


def _in_zone(instant: datetime, zone: str, text: str) -> str:
    try:
        return instant.astimezone(UTC).astimezone(ZoneInfo(zone)).isoformat(" ")
    except OverflowError:
        raise ValueError(f"{text} is at the end of the calendar; write a time of the years 2 to 9998") from None


def _parsed(text: str, kind: Primitive) -> tuple[datetime, str | None]:
    """Date and clock, and the offset if there is one."""
    parts = _TIME.fullmatch(text)
    try:
        if parts is not None and (parts["clock"] or not parts["offset"]):
            return datetime.fromisoformat(f"{parts['date']} {parts['clock'] or '00:00'}"), parts["offset"]
    except ValueError:
        pass  # 25 o'clock
    raise ValueError(f"{text!r} is no {kind}; write for example 2024-01-31 06:00:00, or with an offset 2024-01-31T06:00:00+01:00")


def micros_of(instant: str) -> int:
    """Microseconds since 1970 of a time as it is spelled here."""
    return (datetime.fromisoformat(instant) - _EPOCH) // timedelta(microseconds=1)


def time_of_micros(micros: int, zone: str) -> str:
    """The spelling of a time; of one that no calendar here has, its microseconds since 1970."""
    try:
        return (_EPOCH + timedelta(microseconds=micros)).astimezone(ZoneInfo(zone)).isoformat(" ")
    except OverflowError:
        return f"{micros} microseconds since 1970"


_SPELLINGS: Mapping[str, Callable[[str, Primitive, str], str]] = {
    "boolean": _boolean,
    **dict.fromkeys(_BITS, _integer),
    "decimal": _decimal,
    **dict.fromkeys(("float", "double"), _float),
    **dict.fromkeys(("string", "char", "varchar"), _text),
    "binary": _binary,
    "date": _date,
    "timestamp": _instant,
    "timestamp_ntz": _local_time,
}
