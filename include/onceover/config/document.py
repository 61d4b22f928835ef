"""YAML text as plain data with the line of every key, and ``${NAME}`` replaced on demand.

Stricter than YAML: a key may stand only once, anchors and aliases are refused. No message repeats
any part of the text, which may hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from onceover.config.faults import Fault, Invalid, shown_key

Path = tuple[str, ...]

FLOW_FILE_PAGE: Final = "docs/flow-file.md"
REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The deepest key that exists has three levels; arguments of a handler may have some more.
_MAX_DEPTH: Final = 20
_Loader = type[yaml.SafeLoader] | type[yaml.CSafeLoader]
# libyaml reads a flow's file in 0.3 ms, Python in 7; each task and command does. Not every PyYAML has it.
_FAST: Final[_Loader] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_OPENING: Final = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_CLOSING: Final = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)
# What `clusters up` sets, so that the shipped files work on a machine that has never seen a Kafka.
EMBEDDED_VARIABLES: Final = ("ONCEOVER_EAST", "ONCEOVER_WEST", "ONCEOVER_CONNECT_REST")
_UP_FIX: Final = dict.fromkeys(EMBEDDED_VARIABLES, "start the embedded clusters: make up; or ")
_QUOTE_FIX: Final = "quote values with special characters, e.g. \"${NAME}\" or '*'"


@dataclass(frozen=True, slots=True)
class Document:
    """The top-level mapping of a file, with the line of each key path."""

    data: dict[str, Any]
    lines: Mapping[Path, int]

    def line_of(self, path: Path) -> int | None:
        """Return the line of ``path``, or of the nearest key around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def parse_yaml(
    text: str, where: str, page: str = FLOW_FILE_PAGE, *, as_written: Callable[[Path], bool] = lambda _: False
) -> tuple[Document | None, list[Fault]]:
    """Return the document, or ``None`` and why there is none; duplicate keys are faults as well.

    Args:
        where: named in messages; ``page``: of the docs that explains such a file.
        as_written: tells of which keys the value is the text as it stands: 0123 is a password there, and no
            number to base 8, as YAML 1.1 has it.
    """
    node = _composed(text, where, page, _FAST)
    if isinstance(node, Fault):
        # Where something is wrong, the lines that Python's reader names are nearer to it.
        node = _composed(text, where, page, yaml.SafeLoader)
    if isinstance(node, Fault):
        return None, [node]
    if not isinstance(node, yaml.MappingNode):
        return None, [Fault(where, "", "expected keys with values, found none", f"see {page}")]
    reader = _Reader(where, as_written)
    data = reader.mapping(node, ())
    return Document(data, reader.lines), reader.faults


def _composed(text: str, where: str, page: str, loader: _Loader) -> yaml.Node | Fault | None:
    try:
        return _refused(text, where, page, loader) or yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is None:
            return Fault(where, "", "not valid YAML", _QUOTE_FIX)
        return Fault(where, "", "not valid YAML", _fix(text, mark), mark.line + 1)
    except (yaml.YAMLError, ValueError, OverflowError):
        # PyYAML lets Python's own errors out for an escape beyond Unicode.
        problem = "not valid YAML: a character is not allowed"
        return Fault(where, "", problem, "save it as plain UTF-8 text")


def _fix(text: str, mark: yaml.Mark) -> str:
    """Return what to do about a line that is no YAML, or begins a second document."""
    line = text[text.rfind("\n", 0, mark.index) + 1 :].partition("\n")[0]
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "indent it with blanks, not with tabs"
    return "keep one document in the file, without ---" if line.startswith("---") else _QUOTE_FIX


def _refused(text: str, where: str, page: str, loader: _Loader) -> Fault | None:
    """Return the fault of YAML that is valid and yet not for configuration files.

    Looked for before parsing: the parser's time grows with the square of the depth, and what it
    says about an unknown alias quotes the text.
    """
    depth = 0
    for token in yaml.scan(text, Loader=loader):
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        line = token.start_mark.line + 1
        if isinstance(token, yaml.AliasToken | yaml.AnchorToken):
            return Fault(where, "", "anchors and aliases (& and *) are not supported", _QUOTE_FIX, line)
        if depth > _MAX_DEPTH:
            return Fault(where, "", "nested too deeply", f"see {page}", line)
    return None


# What PyYAML raises where a tag (`!!int ""`, `!!bool maybe`, `!!timestamp soon`) does not fit its value.
_UNREADABLE: Final = (yaml.YAMLError, ValueError, OverflowError, LookupError, AttributeError, TypeError)
_NULL: Final = "tag:yaml.org,2002:null"
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
# What YAML 1.1 takes for a number to base 8 (010 is 8) or 60 (1:30 is 90), and nobody else does.
_OTHER_BASES: Final = re.compile(r"[-+]?0[0-7_]+|[^:]*:.*")


class _Reader:
    def __init__(self, where: str, as_written: Callable[[Path], bool]) -> None:
        self._where, self._as_written = where, as_written
        self._scalars = yaml.SafeLoader("")
        self.lines: dict[Path, int] = {}
        self.faults: list[Fault] = []

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.faults.append(Fault(self._where, _dotted(path), "a key is not a text", _QUOTE_FIX, line))
                continue
            key = str(key_node.value)
            here = (*path, key)
            if key in data:
                fix = f"remove one (the other is on line {self.lines[here]})"
                self.faults.append(Fault(self._where, _dotted(here), "the key is given twice", fix, line))
                continue
            self.lines[here] = line
            data[key] = self._value(value_node, here)
        return data

    def _value(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, path) for item in node.value]
        if node.tag != _NULL and self._as_written(path):
            return str(node.value)
        if node.tag in _NUMBERS and _OTHER_BASES.fullmatch(node.value):
            problem = "the value is a number to base 8 or 60 in YAML 1.1, by a leading 0 or a colon"
            return self._refused(node, path, problem, "write it as a decimal number, or in quotes as a text")
        try:
            return self._scalars.construct_object(node)
        except _UNREADABLE:
            return self._refused(node, path, "the value cannot be read", _QUOTE_FIX)

    def _refused(self, node: yaml.Node, path: Path, problem: str, fix: str) -> None:
        line = node.start_mark.line + 1
        self.faults.append(Fault(self._where, _dotted(path), problem, fix, line))


def substitute(value: Any, environ: Mapping[str, str]) -> Any:
    """Return ``value`` with every ``${NAME}`` in its texts replaced from ``environ``.

    Raises:
        Invalid: a variable is not set (named in the message), or ``${`` without a valid name.
    """
    if isinstance(value, dict):
        return {key: substitute(item, environ) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [substitute(item, environ) for item in value]
    if not isinstance(value, str):
        return value

    def read(match: re.Match[str]) -> str:
        name = match.group(1)
        if not _NAME.fullmatch(name):
            raise Invalid(
                "${...} does not hold the name of a variable", "write ${NAME}: letters, digits, underscores"
            )
        if name not in environ:
            fix = f"set it: export {name}=..."
            raise Invalid(f"the environment variable {name} is not set", _UP_FIX.get(name, "") + fix)
        return environ[name]

    return REFERENCE.sub(read, value)


def substitute_each(
    data: dict[str, Any], environ: Mapping[str, str], *, keep: Callable[[Path], bool], path: Path = ()
) -> tuple[dict[str, Any], list[tuple[Path, Invalid]]]:
    """Return ``data`` with references replaced except below ``keep``, and every failure by key."""
    result: dict[str, Any] = {}
    failures: list[tuple[Path, Invalid]] = []
    for key, value in data.items():
        here = (*path, key)
        if keep(here):
            result[key] = value
        elif isinstance(value, dict):
            result[key], below = substitute_each(value, environ, keep=keep, path=here)
            failures += below
        else:
            try:
                result[key] = substitute(value, environ)
            except Invalid as error:
                failures.append((here, error))
    return result, failures


def _dotted(path: Path) -> str:
    return ".".join(map(shown_key, path))
