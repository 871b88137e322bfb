"""Redaction of secrets in text, applied to every error message. Imports no module of this package."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "***"
"""Replacement of a secret."""

_SECRET = (
    r"pass_?word|passwd|\bpwd\b|passphrase|passfile|secret|credential|private[_.\-]?key|access[_.\-]?key"
    r"|account[_.\-]?key|api[_.\-]?key|fernet[_.\-]?key"
    r"|(?:access|session|security|auth|sas|bearer|oauth2?)[_.\-]?token"
    r"|(?<![a-z])(?:refresh|id|api|github|gitlab|databricks)[_.\-]?token(?![\w.\-])"
    r"|\bcatalog\.[\w\-]{1,80}\.(?:token|header\.)"
)
# In other text, a token identifies a refresh and is not secret.
_SECRET_NAME = re.compile(rf"{_SECRET}|(?:^|[_.\-])token$|(?:^|\.)header\.", re.IGNORECASE)
# All repetitions are bounded, because the text may be a single word of megabytes.
_QUOTED = r"""\"(?:[^"\\]|\\.){0,4096}\"|'(?:[^'\\]|\\.|''){0,4096}'(?!')|\\{1,3}"[^"\n]{0,4096}"|["'][^"'\n]{0,4096}"""
"""A quoted value: with quotes escaped as in Python, JSON and SQL, as JSON in JSON, and without an end quote."""

_NEW = r"""(?!\*{3}(?:[\s,;&)\]}<>"']|$))"""
"""Prevents redacting a value again together with the replacement."""

_BARE = rf"""{_NEW}(?:(?:Bearer|Basic)\s{{1,3}})?[^\s&"'](?:[^\s&]|&(?![\w.\-]{{1,80}}=)){{0,4096}}"""
"""An unquoted value; it ends at the next URL parameter."""

_PROSE = r"""(?![a-z'\-]{1,40}[,;.:]?[ \t]{1,3}(?![\w.\-]{1,40}["']?\s?[:=])[a-z(])"""
"""Excludes prose of two words: ``a password: it is told by the connection``."""

_WORD = rf"{_PROSE}{_NEW}(?![\[({{<])[^\s\"'\-]\S{{0,4096}}"
_NAME = rf"(?:{_SECRET}|\bauthorization\b)[\w.\-]{{0,80}}"
_IGNORE = re.IGNORECASE
_NAMED = re.compile(
    rf"""({_NAME})(\\{{0,3}}["'`]?\s{{0,3}}(?:=>|->|:=|=(?!>))\s{{0,3}})(?:{_QUOTED}|{_BARE})"""
    rf"""|({_NAME})(\\{{0,3}}["']\s?:\s?)(?:{_QUOTED})""",
    _IGNORE,
)
_AFTER_COLON = re.compile(
    rf"""({_NAME})(?<!error)(?<!exception)(?<!warning)(["'`]?[ \t]{{0,3}}:[ \t]{{1,3}})({_QUOTED}|{_WORD})""", _IGNORE
)
_JOINED = re.compile(
    r"""(?<![a-z])((?:password|passwd|passphrase|(?:secret|access|private|api)[_.\-]?key):)[^\s:"'][^\s:]{0,4096}(?=\s|$)""",
    _IGNORE,
)
_OPTION = re.compile(
    rf"""(--[\w.\-]{{0,80}}(?:password|passwd|passphrase|secret|[_.\-]key|(?:access|auth|api|bearer|session)[_.\-]token)\s{{1,3}})"""
    rf"({_QUOTED}|{_WORD})",
    _IGNORE,
)
_LOGIN = re.compile(
    r"""(authorization["']?\s{0,3}[:=]\s{0,3}["']?)(?:Bearer|Basic|Negotiate|Digest|Token)\s{1,3}[^\s"']{1,4096}""", _IGNORE
)
_BEARER = re.compile(r"\b(Bearer\s{1,3})(?=[A-Za-z.~+/=\-]{0,200}[\d._])[\w.~+/=\-]{8,4096}")
_DIGEST = re.compile(r"(authorization\s{0,3}[:=]\s{0,3})Digest\s[^\n]{1,4096}", _IGNORE)
_COOKIE = re.compile(r"((?:^|[^\w\-])(?:set-)?cookie:[ \t]{1,3})[^\s=]{1,256}=[^\n'\"]{1,4096}", _IGNORE)
_JWT = re.compile(r"\beyJ[\w\-]{8,4096}\.eyJ[\w\-]{4,4096}\.[\w\-]{0,4096}")
_VARIABLE = re.compile(r"(\b[A-Z][A-Z0-9_]{0,80}_TOKEN=)[^\s]{1,4096}")
_TOKEN_IN_QUERY = re.compile(r"(\w://[^\s?#]{1,1024}\?(?:[^\s&]{1,256}&){0,20}token=)[^\s&\"']{1,4096}", _IGNORE)
_SIGNED = re.compile(r"""((?:\bsig|signature)=)[^\s&"',;]{1,4096}""", _IGNORE)
_SQL = re.compile(r"""(\b(?:password|identified\s{1,3}by)\s{1,3})(?:'(?:[^']|''){0,4096}'|"[^"]{0,4096}")""", _IGNORE)
_SQL_BARE = re.compile(rf"""(\bIDENTIFIED\s{{1,3}}BY\s{{1,3}}){_NEW}[^\s;'"]{{1,256}}""")
_PAIR = re.compile(
    rf"""([(\[]\s?["']?[\w.\-]{{0,80}}?{_NAME}["']?,\s{{0,3}})(?:{_QUOTED}|[^\s)\]"']{{1,4096}})(?=\s?[)\]])""", _IGNORE
)
_XML = re.compile(
    rf"""(<[\w:.\-]{{0,80}}?{_NAME}(?:\s[^<>]{{0,200}})?>|{_NAME}\s?</name>\s{{0,80}}<value>)[^<]{{1,4096}}(?=</)""", _IGNORE
)
_ATTRIBUTE = re.compile(rf"""(\bname=["'][\w.\-]{{0,80}}?{_NAME}["']\s{{1,3}}value=)["'][^"'\n]{{1,4096}}["']""", _IGNORE)
_KEY = re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)(?:[^\-]|-(?!----)){1,16384}")
_IN_URL = re.compile(r"""(\w://[^\s/:@"'`]{0,256}:)[^\s"'`]{1,1024}@""")
_TOKEN_IN_URL = re.compile(r"""(https?://)[^\s/:@"'`?#]{1,1024}@""", _IGNORE)

_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (_KEY, rf"\1{HIDDEN}"),
    (_IN_URL, rf"\1{HIDDEN}@"),
    (_TOKEN_IN_URL, rf"\1{HIDDEN}@"),
    (_DIGEST, rf"\1{HIDDEN}"),
    (_COOKIE, rf"\1{HIDDEN}"),
    (_JWT, HIDDEN),
    (_VARIABLE, rf"\1{HIDDEN}"),
    (_TOKEN_IN_QUERY, rf"\1{HIDDEN}"),
    (_LOGIN, rf"\1{HIDDEN}"),
    (_BEARER, rf"\1{HIDDEN}"),
    (_SIGNED, rf"\1{HIDDEN}"),
    (_NAMED, rf"\1\2\3\4{HIDDEN}"),
    (_AFTER_COLON, rf"\1\2{HIDDEN}"),
    (_JOINED, rf"\1{HIDDEN}"),
    (_OPTION, rf"\1{HIDDEN}"),
    (_SQL, rf"\1{HIDDEN}"),
    (_SQL_BARE, rf"\1{HIDDEN}"),
    (_PAIR, rf"\1{HIDDEN}"),
    (_XML, rf"\1{HIDDEN}"),
    (_ATTRIBUTE, rf"\1{HIDDEN}"),
)
"""Patterns of secrets, with their replacements."""

_IN_COMMENT = re.compile(
    rf"""(\#[^\n]{{0,200}}?(?:{_SECRET})[\w.\-]{{0,80}}["'`]?\s{{0,3}}:[ \t]{{1,3}})\S[^\n]*""", re.IGNORECASE
)


def is_secret_name(name: str) -> bool:
    """Return whether an option or URL parameter with this name is a secret."""
    return _SECRET_NAME.search(name) is not None


def has_password(uri: str) -> bool:
    """Return whether a URI contains a password."""
    return _IN_URL.search(uri) is not None


def without_secrets(text: str) -> str:
    """Redact values of secret names, logins in headers and URLs, and signatures.

    Recognizes the syntax of URLs, command lines, DSNs, JSON, YAML, SQL, XML, properties and environments. A secret without such a
    name cannot be distinguished from other text.
    """
    for form, left in _FORMS:
        text = form.sub(left, text)
    return text


def yaml_without_secrets(text: str) -> str:
    """Redact YAML text in which values of secret names are redacted already.

    Also redacts :func:`without_secrets`, and ``name: secret`` in comments.
    """
    return _IN_COMMENT.sub(rf"\1{HIDDEN}", without_secrets(text))


def without_secret_values(settings: Mapping[str, str]) -> dict[str, str]:
    """Redact values of secret names, and passwords in URLs, in settings."""
    return {name: HIDDEN if is_secret_name(name) else without_secrets(value) for name, value in settings.items()}
