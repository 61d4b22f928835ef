"""What an answer of the workers' REST API means, or none: every error says what to do next. Pure.

Invariant: only what Connect itself says of a connector counts as that. A proxy before the workers answers
with pages of its own, and so does the HTTP server in a worker for an address that it does not like.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

import httpx

from onceover.backoff import Deadline
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.workers.masking import masked
from onceover.connectors.workers.reaching import cause_of, unknown_name
from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.kafka.codes import KafkaCode

_REBALANCE_WORDS: Final = "a rebalance is expected"
LONGEST_TEXT: Final = 500
# The configurations of all connectors of a cluster come in one: ten thousand of six kilobytes.
_LONGEST_ANSWER_BYTES: Final = 64 << 20
# Of a page; what comes behind is not looked at, or pages without an end to it would take minutes.
_LOOKED_AT: Final = 10_000
_TITLE: Final = re.compile(r"<title>([^<]*)</title>")
# What the HTTP server of a worker refuses in an address, as it is written there: '/', '%' and '\\'.
_FOLDERS: Final = (".", "..")
_UNSERVED: Final = re.compile(r"^/connectors/[^/?]*%(2F|25|5C)", re.IGNORECASE)
# Said of this moment, by a worker or a proxy before it, not of the request.
_BUSY: Final = (
    httpx.codes.REQUEST_TIMEOUT,
    httpx.codes.TOO_EARLY,
    httpx.codes.TOO_MANY_REQUESTS,
)
_UNTAKEN: Final = (httpx.codes.TOO_EARLY, httpx.codes.TOO_MANY_REQUESTS)
# Said by a proxy for a worker that is not there yet.
_AWAY: Final = (
    httpx.codes.BAD_GATEWAY,
    httpx.codes.SERVICE_UNAVAILABLE,
    httpx.codes.GATEWAY_TIMEOUT,
)


def no_answer(url: str, error: httpx.HTTPError) -> UsageError | Retriable:
    """Return what it means that a worker was not heard."""
    refusal = _tls_refusal(error)
    if refusal is not None:
        return UsageError(
            f"the worker at {url} cannot be talked to over TLS",
            code=KafkaCode.TLS_REFUSED,
            where=url,
            seen=str(refusal),
            resolve="correct the address (https or http) and the certificates under `rest`",
        )
    words = unknown_name(error)
    # Of one worker among several it may be that of a machine that is gone: the others are asked.
    return Retriable(
        f"the worker at {url} does not answer",
        code=ConnectorCode.WORKER_UNREACHABLE if words is None else ConnectorCode.NAME_UNKNOWN,
        where=url,
        seen=words or str(error) or type(error).__name__,
        resolve="start the worker, or correct its address under `rest`, then run again",
    )


def wrong_name(error: Retriable) -> UsageError:
    """Return what is raised when no worker has a name that this machine knows."""
    return UsageError(
        "this machine does not know any worker by its name",
        code=ConnectorCode.NAME_UNKNOWN,
        where=error.where,
        expected="addresses of workers that resolve here",
        seen=error.seen,
        resolve="correct the addresses under `rest`, or run where the names are known",
    )


def _tls_refusal(error: BaseException) -> ssl.SSLError | str | None:
    """Return what TLS objects to; a worker that hangs up in the middle may be ending, and is not refusing."""
    if isinstance(error, httpx.RemoteProtocolError) and "illegal" in str(error):
        # The first bytes of TLS are no line of HTTP.
        return str(error)
    found = cause_of(error, ssl.SSLError)
    return None if isinstance(found, ssl.SSLEOFError) else found


def quoted(name: str) -> str:
    """Return a connector's name as part of an address.

    Raises:
        NeedsOperator: NAME_UNSERVED, workers would take it for another connector's.
    """
    if ";" in name:
        # A worker cuts it off when it passes a command on to the leader (4.3.0).
        raise _unserved(name, "what follows a ';' is lost between workers")
    if name in _FOLDERS:
        # Not sent by any client of HTTP: what would be asked for is another resource.
        raise _unserved(name, f"{name!r} in an address is a folder, and taken out of it")
    return quote(name, safe="")


def _unserved(where: str, seen: str) -> NeedsOperator:
    return NeedsOperator(
        "the workers' REST API cannot be asked about a connector of this name",
        code=ConnectorCode.NAME_UNSERVED,
        where=where,
        expected="a name without '/', '\\', '%' and ';', which workers refuse in an address, nor '.' or '..'",
        seen=seen,
        resolve="nobody can stop or change it under this name: leave it out, or create it anew under another "
        "one, where it has no offsets",
    )


def is_to_wait(answer: httpx.Response) -> bool:
    """Tell whether the same request may be taken in a moment."""
    return is_rebalance(answer) or answer.status_code in _BUSY


def is_untaken(answer: httpx.Response) -> bool:
    """Tell whether nobody can have taken the request; behind any other error it may be on its way."""
    return is_rebalance(answer) or answer.status_code in _UNTAKEN


def is_rebalance(answer: httpx.Response) -> bool:
    """Tell whether a rebalance is in the way."""
    # What a worker answers without asking the leader is an error of its own in that moment (4.3.0).
    own = answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR and _REBALANCE_WORDS in _text(answer)
    return own or answer.status_code == httpx.codes.CONFLICT


def check_started(answer: httpx.Response, url: str) -> None:
    """Raise where a worker that was asked who it is has not begun yet: it answers 404 before it is ready.

    That is the answer of the HTTP server in it. One in Connect's own words is of a worker that is ready, and
    has nothing there: nobody has to wait for that to change.

    Raises:
        Retriable: WORKER_STARTING.
        UsageError: NO_WORKER, the address leads to another path of a worker.
    """
    if answer.status_code == httpx.codes.NOT_FOUND and _is_connects(answer):
        raise UsageError(
            f"a Connect worker answers at {url}, and has nothing there",
            code=ConnectorCode.NO_WORKER,
            where=url,
            expected="the address at which it says its version; most have no path after the port",
            seen=f"HTTP {answer.status_code}: {words(answer)}",
            resolve="correct the address under `rest`",
        )
    if answer.status_code in (httpx.codes.NOT_FOUND, *_AWAY):
        raise _starting(answer, url)


def _is_connects(answer: httpx.Response) -> bool:
    """Tell whether an error is told as Connect tells its own."""
    found = _parsed(answer)
    return isinstance(found, dict) and type(found.get("error_code")) is int and "message" in found


def _starting(answer: httpx.Response, url: str) -> Retriable:
    return Retriable(
        f"what answers at {url} is no Connect worker yet",
        code=ConnectorCode.WORKER_STARTING,
        where=url,
        seen=f"HTTP {answer.status_code}",
        resolve="wait until it has started, then run again; if it stays so, correct its address under `rest`",
    )


def not_now(answer: httpx.Response, path: str) -> Retriable:
    """Return what is raised when the workers cannot do it for the moment, however often asked."""
    if answer.status_code in _AWAY:
        return _starting(answer, str(answer.request.url).removesuffix(path))
    rebalance = is_rebalance(answer)
    return Retriable(
        "the workers rebalance and take no request" if rebalance else "the workers cannot do that now",
        code=ConnectorCode.REBALANCE if rebalance else ConnectorCode.WORKER_ERROR,
        where=f"{answer.request.method} {path}",
        seen=f"HTTP {answer.status_code}: {words(answer)}",
        resolve="wait until they are done, then run again",
    )


def check_login(answer: httpx.Response, path: str) -> None:
    """Raise where the login is refused: whoever asks a worker what it is needs one, too.

    Raises:
        UsageError: REST_LOGIN.
    """
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise UsageError(
            "the workers refuse the login of their REST API",
            code=ConnectorCode.REST_LOGIN,
            where=f"{answer.request.method} {path}",
            seen=f"HTTP {answer.status_code}",
            resolve="correct the name and password of the workers' REST API",
        )


def unknown_command(answer: httpx.Response, path: str) -> NeedsOperator:
    """Return what is raised when workers know a connector, and not what they are to do with it."""
    return NeedsOperator(
        "the workers do not know this command",
        code=ConnectorCode.WORKER_VERSION,
        where=f"{answer.request.method} {path}",
        expected="workers of Kafka 3.5 or later: they can stop a connector",
        seen=f"HTTP {answer.status_code}: {words(answer)}",
        resolve="upgrade the workers first",
    )


def check_answer(answer: httpx.Response, path: str) -> None:
    """Raise unless the answer is one of success.

    Args:
        path: that was asked for.

    Raises:
        UsageError: REST_LOGIN, or NO_CONNECTOR.
        NeedsOperator: NAME_UNSERVED; CONFIG_REFUSED where a configuration was put, REQUEST_REFUSED elsewhere.
        Retriable: the workers cannot do it now.
    """
    status = answer.status_code
    if answer.is_success:
        return
    where, seen = f"{answer.request.method} {path}", f"HTTP {status}: {words(answer)}"
    check_login(answer, path)
    if status == httpx.codes.NOT_FOUND:
        raise UsageError(
            "there is no such connector",
            code=ConnectorCode.NO_CONNECTOR,
            where=where,
            seen=seen,
            resolve="see `connectors list`",
        )
    if status >= httpx.codes.INTERNAL_SERVER_ERROR or is_to_wait(answer):
        raise not_now(answer, path)
    if _UNSERVED.match(path) and _TITLE.search(answer.text[:_LOOKED_AT]):
        # Not Connect's own answer, but that of the HTTP server before it: it did not like the address.
        raise _unserved(where, words(answer))
    puts_config = answer.request.method == "PUT" and path.endswith("/config")
    raise NeedsOperator(
        "the workers, or a proxy before them, refuse it",
        code=ConnectorCode.CONFIG_REFUSED if puts_config else ConnectorCode.REQUEST_REFUSED,
        where=where,
        seen=seen,
        resolve="resolve what they say, then run again",
    )


def words(answer: httpx.Response) -> str:
    """Return the worker's own words, cut short, without values of a configuration; of a page its title.

    Nor is our login in them: what shows whoever asks what it was sent may stand before the workers.
    """
    return masked(_text(answer), _sent(answer.request), _login(answer.request))[:LONGEST_TEXT]


def _login(request: httpx.Request) -> list[str]:
    """Return the login that a request carried, as it was sent, and as it is typed."""
    _, _, sent = request.headers.get("Authorization", "").partition(" ")
    typed = base64.b64decode(sent).decode()
    return [sent, typed, typed.partition(":")[2]]


def _sent(request: httpx.Request) -> dict[str, str]:
    """Return the configuration that a request carried; empty where it carried none."""
    try:
        found = json.loads(request.content or b"{}")
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _text(answer: httpx.Response) -> str:
    found = _parsed(answer)
    if isinstance(found, dict):
        text = str(found.get("message", ""))
    else:
        page = _TITLE.search(answer.text[:_LOOKED_AT])
        text = page[1] if page else answer.text
    return text.strip()


def document_of(answer: httpx.Response, url: str) -> dict[str, Any]:
    """Return what a worker answered.

    Raises:
        UsageError: NO_WORKER, something else listens there.
    """
    found = _json(answer)
    if not isinstance(found, dict):
        raise _no_worker(answer, url)
    return found


def listed_in(answer: httpx.Response, url: str) -> list[str]:
    """Return the names that a worker answered; errors as of :func:`document_of`."""
    found = _json(answer)
    if not isinstance(found, list):
        raise _no_worker(answer, url)
    return [str(name) for name in found]


@contextmanager
def understood(url: str) -> Iterator[None]:
    """Take what an answer says apart within: where it is not of the shape of a worker's, nobody is one there.

    Raises:
        UsageError: NO_WORKER.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"what answers at {url} does not answer as a Connect worker does",
            code=ConnectorCode.NO_WORKER,
            where=url,
            seen=f"an answer of another shape ({type(error).__name__})",
            resolve="correct the address under `rest`",
        ) from error


def whole(answer: httpx.Response, deadline: Deadline) -> httpx.Response:
    """Return an answer with its body, however it comes: there is an end to how long, and how much.

    Args:
        answer: whose body was not read yet, asked for without compression.

    Raises:
        httpx.HTTPError: it is too long, too slow, or compressed all the same.
    """
    if answer.headers.get("content-encoding", "identity") != "identity":
        # A few kilobytes can stand for gigabytes.
        raise httpx.DecodingError("compressed, which nobody asked for", request=answer.request)
    body = bytearray()
    for piece in answer.iter_bytes():
        body += piece
        if len(body) > _LONGEST_ANSWER_BYTES:
            raise httpx.ReadError("longer than any answer of a worker", request=answer.request)
        if deadline.passed:
            raise httpx.ReadTimeout("not at its end in time", request=answer.request)
    return httpx.Response(
        answer.status_code, headers=answer.headers, content=bytes(body), request=answer.request
    )


def _json(answer: httpx.Response) -> Any:
    return _parsed(answer) if answer.is_success else None


def _parsed(answer: httpx.Response) -> Any:
    """Return the JSON of an answer, None where it is none; brackets in brackets without end are none."""
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def _no_worker(answer: httpx.Response, url: str) -> UsageError:
    return UsageError(
        f"what answers at {url} is no Connect worker",
        code=ConnectorCode.NO_WORKER,
        where=url,
        seen=f"HTTP {answer.status_code}",
        resolve="correct the address under `rest`",
    )
