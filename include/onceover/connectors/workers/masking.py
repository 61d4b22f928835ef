"""What workers say of a connector, without the values of its configuration. Pure.

Invariant: no value that the configuration holds, as it was put or as the workers have resolved it, is in what
is shown, but for those that say where a connector reads and writes. Kafka's own errors quote the value that
they object to, and plugins what they like; a value may be a secret, or an address with one in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

MASK: Final = "***"
# Shown in plans and lists anyway, and what most errors are about.
_PLAIN: Final = re.compile(r"name|connector\.class|tasks\.max|(.*\.)?(topics?|host|hostname|port)")
# Words of Kafka's own texts. Nothing shorter than three characters is a secret.
_WORDS: Final = frozenset({"true", "false", "null", "none", "[hidden]"})
_SHORTEST: Final = 3
# Within other words, too, where it is too long to be there by chance.
_LONG: Final = 8
# As ConfigException words it; a value may have several lines.
_BEHIND: Final = " for configuration "
_QUOTED: Final = re.compile(rf"Invalid value (.*?){_BEHIND}", re.DOTALL)
# Who logs in where, in an address, and the words of a JAAS file: parts that are quoted without the rest.
_LOGIN: Final = re.compile(r"(://)[^/@\s]*@")
_PART: Final = re.compile(
    r"://[^/@\s:]*:([^/@\s]+)@|\"([^\"]+)\"|'([^']+)'|\b(?:Bearer|Basic)\s+([^\s,;\"']+)"
)
# What a login that nobody can read is told by (Kafka's JaasConfig): of a password with a blank or a quote
# in it the rest is taken for a key.
_JAAS: Final = re.compile(r"'.{1,200}?' in JAAS config")
# A driver's settings, in an address or as it lists them: what the workers read elsewhere, or half of a value.
# How far each part may reach is bounded: a trace may hold one word of many thousand characters.
_NAME: Final = r"(?:passw|passphrase|pwd|secret|token|credential|api[_.-]?key)[\w.-]{0,100}"
_PAIR: Final = re.compile(rf"({_NAME}=)[^&;,\s\"'()\[\]{{}}]+", re.IGNORECASE)
# The same as it is written in a value, of which a driver says it alone.
_NAMED: Final = re.compile(rf"{_NAME}\s{{0,9}}[=:]\s{{0,9}}([^&;,\s\"']+)", re.IGNORECASE)
_REFERENCES: Final = re.compile(r"(?:\$\{[^}]*\})+")
# What references stand for, as it is quoted within their value: a word, up to where the value goes on. Looked
# for once: all places for one tried with all places for the next would take for ever.
_FILLED: Final = r"(?>\S{1,4000}?%s)"


def masked(text: str, config: Mapping[str, str], resolved: Iterable[str] = ()) -> str:
    """Return a text in which values stand as ``***``.

    Args:
        text: in the workers' words.
        config: as it was put.
        resolved: values that the workers have read elsewhere and tell: what a ``${file:...}`` is.
    """
    shown = {value for key, value in config.items() if _PLAIN.fullmatch(key)}
    values = ({*config.values()} - shown) | {*resolved}
    # Not looked for beyond the last place where one can end: a long trace may begin many that do not.
    end = text.rfind(_BEHIND) + len(_BEHIND)
    if end >= len(_BEHIND):
        values.update(_QUOTED.findall(text[:end]))
        text = _QUOTED.sub(f"Invalid value {MASK}{_BEHIND}", text[:end]) + text[end:]
    parts = {part for value in values for part in _parts(value)}
    for part in sorted(parts, key=len, reverse=True):
        text = _pattern(part).sub(MASK, text)
    text = _JAAS.sub(f"'{MASK}' in JAAS config", text)
    return _PAIR.sub(rf"\1{MASK}", _LOGIN.sub(rf"\1{MASK}@", text))


def _parts(value: str) -> Iterator[str]:
    """Yield a value, and what of it may be said without the rest."""
    found = [value, *value.splitlines(), *value.split(","), *("".join(each) for each in _PART.findall(value))]
    found += _NAMED.findall(value)
    # As it is when it is used, where an address has it.
    found += [unquote(each) for each in found if "%" in each]
    for each in map(str.strip, found):
        if len(each) >= _SHORTEST and each.lower() not in _WORDS:
            yield each


def _pattern(value: str) -> re.Pattern[str]:
    begin, *rest = _REFERENCES.split(value)
    if rest and len(begin) >= _LONG:
        filled = "".join(_FILLED % re.escape(each) for each in rest)
        # To the end of the word: the last of what is filled in may hold what comes behind it.
        return re.compile(rf"{re.escape(value)}|{re.escape(begin)}{filled}\S*")
    if len(value) >= _LONG:
        return re.compile(re.escape(value))
    return re.compile(rf"(?<![\w.-]){re.escape(value)}(?!\w|[.-]\w)")
