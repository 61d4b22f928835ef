"""Sends the metrics to an OpenTelemetry collector, by OTLP over HTTP, as long as they are served.

Invariant: a collector that is away, slow or refuses costs nobody anything but its own samples: it is a thread
of its own, each attempt has an end, whatever is answered and however slowly, and the next one tells what is
true by then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import requests
import urllib3
from opentelemetry.exporter.otlp.proto.http import metric_exporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.util import re as headers
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

from onceover.errors import UsageError
from onceover.intime import AnswerInTime
from onceover.metrics.catalogue import KEPT
from onceover.metrics.otlp import PushAnswer, Taken, metrics_data, read_answer
from onceover.planning.background import begin, starting

log = logging.getLogger(__name__)

_PATH: Final = "/v1/metrics"
_NO_HEADER: Final = (
    "what is no name=value in OTEL_EXPORTER_OTLP_HEADERS, or OTEL_EXPORTER_OTLP_METRICS_HEADERS, is not sent"
)
# With its own repetitions; the next attempt comes an interval later anyway.
_PATIENCE_S: Final = 10.0
# One of them is a few words.
_MOST_ANSWER_BYTES: Final = 1 << 20
_NO_ANSWER: Final = "no answer comes"


class OtlpPush:
    """Sends what ``scrape`` answers every ``interval_s`` seconds, between ``start`` and ``stop``.

    Headers (a token, for instance), certificates and compression are those of OpenTelemetry's own variables:
    OTEL_EXPORTER_OTLP_HEADERS and its like. They are in no log of ours.

    Raises:
        UsageError: ``url`` is none of http or https, or holds a login.
        Retriable: NO_THREAD.
    """

    def __init__(
        self,
        url: str,
        version: str,
        scrape: Callable[[], bytes],
        interval_s: float,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._scrape, self._interval_s = scrape, interval_s
        self._url = checked_url(url)
        with starting():
            self._resource = Resource.create({"service.name": "onceover", "service.version": version})
        # Of the same filter a logger keeps one.
        logging.getLogger(headers.__name__).addFilter(_without_header)
        # The exporter itself calls each answer below 400 a success, and reads none.
        self._answers = _Answers()
        self._exporter = OTLPMetricExporter(
            endpoint=f"{self._url}{_PATH}", timeout=patience_s, session=self._answers.session()
        )
        self._began_ns = time.time_ns()
        self._over = threading.Event()
        self._taken: Taken | None = None
        # It would say at each attempt what is said here once.
        logging.getLogger(metric_exporter.__name__).setLevel(logging.CRITICAL)

    def start(self) -> None:
        """Begin.

        Raises:
            Retriable: NO_THREAD; nothing would be sent.
        """
        # Daemon: a resolver that hangs must not keep the command from ending.
        begin(threading.Thread(target=self._run, name="onceover-otlp", daemon=True))

    def stop(self) -> None:
        """End, without waiting for an attempt."""
        self._over.set()
        self._exporter.shutdown(timeout_millis=0)

    def push(self) -> PushAnswer:
        """Send what is known now; return what became of it."""
        text = self._scrape().decode()
        data = metrics_data(text, self._resource, began_ns=self._began_ns, now_ns=time.time_ns(), kept=KEPT)
        self._answers.last = None
        self._exporter.export(data)
        return self._answers.last or PushAnswer(Taken.NONE, _NO_ANSWER)

    def _run(self) -> None:
        while not self._over.wait(self._interval_s):
            try:
                answer = self.push()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt may go well
                # Not in its own words: of a header that cannot be sent they are the header.
                log.debug("the metrics cannot be sent: %s", type(error).__name__)
                answer = PushAnswer(Taken.NONE, "it cannot be sent them")
            if self._over.is_set():
                return
            if answer.taken is not self._taken:
                self._taken = answer.taken
                self._say(answer)

    def _say(self, answer: PushAnswer) -> None:
        if answer.taken is Taken.ALL:
            log.info("%s takes the metrics", self._url)
            return
        does = "takes only a part of" if answer.taken is Taken.PART else "does not take"
        again = f"it is tried again every {self._interval_s:g} s"
        log.warning("%s %s the metrics; %s; %s", self._url, does, answer.why, again)


def _without_header(record: logging.LogRecord) -> bool:
    """Let the library say that a header is none, and not which: it may be a token."""
    record.msg, record.args = _NO_HEADER, ()
    return True


class _PlainConnection(HTTPConnection):
    response_class = AnswerInTime


class _TlsConnection(HTTPSConnection):
    response_class = AnswerInTime


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PlainConnection  # pyrefly: ignore[bad-assignment]


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection  # pyrefly: ignore[bad-assignment]


_POOLS: Final = {"http": _PlainPool, "https": _TlsPool}


class _InTime(HTTPAdapter):
    """Ways to a collector, or a proxy; the library's own time is between two bytes of an answer.

    Args:
        failed: is told why nothing was answered.
    """

    def __init__(self, failed: Callable[[str], None]) -> None:
        super().__init__()
        self._failed = failed

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        try:
            return super().send(request, *args, **kwargs)
        except requests.exceptions.SSLError:
            self._failed("no TLS is possible with it; OTEL_EXPORTER_OTLP_CERTIFICATE says who is trusted")
            raise
        except requests.exceptions.RequestException:
            self._failed(_NO_ANSWER)
            raise
        except OSError:
            # The library looks for them before it asks anybody.
            self._failed("a file is not there that OTEL_EXPORTER_OTLP_CERTIFICATE, or its like, names")
            raise

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **kwargs)
        if isinstance(manager, urllib3.ProxyManager):
            manager.pool_classes_by_scheme = _POOLS
        return manager


class _Session(requests.Session):
    """Trusts whom OpenTelemetry's variables name, also where the library's own name others."""

    def merge_environment_settings(
        self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any
    ) -> dict[str, Any]:
        named = self.verify if isinstance(self.verify, str) else verify
        return super().merge_environment_settings(url, proxies, stream, named, cert)


class _Answers:
    """Reads what a collector answers; ``last`` is the newest, of several attempts."""

    def __init__(self) -> None:
        self.last: PushAnswer | None = None

    def session(self) -> requests.Session:
        """Return what the exporter sends by."""
        session = _Session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, _InTime(self._failed))
        session.hooks["response"].append(self._read)
        # The library would read all of it, however much that is.
        session.stream = True
        # Without any the library looks for one in ~/.netrc, and puts it in the place of a token.
        session.auth = _no_login
        return session

    def _failed(self, why: str) -> None:
        self.last = PushAnswer(Taken.NONE, why)

    def _read(self, response: requests.Response, *_: object, **__: object) -> None:
        kind = response.headers.get("Content-Type", "")
        with response:
            self._failed("its answer does not come to its end")
            body = response.raw.read(_MOST_ANSWER_BYTES, decode_content=True)
            if len(body) < _MOST_ANSWER_BYTES:
                self.last = read_answer(response.status_code, kind, body)


def _no_login(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def checked_url(url: str) -> str:
    """Return the address of a collector without a slash at its end.

    Raises:
        UsageError: it is none of http or https, or holds a login.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known, parts = False, urlsplit("")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "an address may hold no login: it would be shown",
            where="--otlp",
            resolve="put it into OTEL_EXPORTER_OTLP_HEADERS: authorization=Basic%20...",
        )
    if not known or parts.query or parts.fragment:
        # Not repeated: a token may stand in it, as a query or as half a login.
        raise UsageError(
            "that is no address of a collector",
            where="--otlp",
            expected="http://host:4318 or https://host/prefix",
        )
    return url.rstrip("/").removesuffix(_PATH)
