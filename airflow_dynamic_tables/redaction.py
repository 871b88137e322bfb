"""Which words are secrets, and text without them; every message of an error goes through here. Imports nothing of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "***"
"""What stands where a secret stood."""

_SECRET = (
    r"pass_?word|passwd|\bpwd\b|passphrase|passfile|secret|credential|private[_.\-]?key|access[_.\-]?key"
    r"|account[_.\-]?key|api[_.\-]?key|(?:access|session|security|auth|sas|bearer|oauth2?)[_.\-]?token"
    r"|\bcatalog\.[\w\-]{1,80}\.(?:token|header\.)"
)
# In other text a token is one of a refresh, which is no secret.
_SECRET_NAME = re.compile(rf"{_SECRET}|(?:^|[_.\-])token$|(?:^|\.)header\.", re.IGNORECASE)
_QUOTED = r"""\"(?:[^"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"""
_BARE = r"""(?:(?:Bearer|Basic)\s{1,3})?[^\s&"'][^\s&]*"""
# Every repetition has an end: the text may be one word of megabytes.
_NAMED = re.compile(
    rf"""((?:{_SECRET})[\w.\-]{{0,80}})(?:(["'`]?\s{{0,3}}=\s{{0,3}})(?:{_QUOTED}|{_BARE})|(["']\s?:\s?)(?:{_QUOTED}))""",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"""(\w://[^\s/:@"'`]{0,256}:)[^\s"'`]{1,1024}@""")
_IN_COMMENT = re.compile(
    rf"""(\#[^\n]{{0,200}}?(?:{_SECRET})[\w.\-]{{0,80}}["'`]?\s{{0,3}}:[ \t]{{1,3}})\S[^\n]*""", re.IGNORECASE
)


def is_secret_name(name: str) -> bool:
    """Whether what goes by that name, an option or a parameter of a URL, is a secret."""
    return _SECRET_NAME.search(name) is not None


def has_password(uri: str) -> bool:
    """Whether a URI holds a password before its host."""
    return _IN_URL.search(uri) is not None


def without_secrets(text: str) -> str:
    """Text in which secrets of ``name=secret`` and ``"name": "secret"``, and passwords in URLs, are hidden.

    A secret without such a name cannot be told from other text.
    """
    return _NAMED.sub(rf"\1\2\3{HIDDEN}", _IN_URL.sub(rf"\1{HIDDEN}@", text))


def yaml_without_secrets(text: str) -> str:
    """Text of YAML, in which the values of secret names are hidden already, without what :func:`without_secrets` hides, and
    without the secrets of ``name: secret`` in its comments.
    """
    return _IN_COMMENT.sub(rf"\1{HIDDEN}", without_secrets(text))


def without_secret_values(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings in which the values of secret names, and passwords in URLs, are hidden."""
    return {name: HIDDEN if is_secret_name(name) else without_secrets(value) for name, value in settings.items()}
