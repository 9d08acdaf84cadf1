"""A farm to look at: a page for people, its numbers as JSON, and metrics for Prometheus, on this host alone."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gambeson.farm._stats import Stats


class Page:
    """Serves a farm's numbers to whoever knows a token, at an address of the loopback interface."""

    def __init__(self, port: int, stats: Callable[[], Stats], explain: Callable[[], list[dict[str, Any]]]) -> None:
        self.token = secrets.token_urlsafe(24)
        page = self
        document = (files("gambeson.farm") / "page.html").read_bytes()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page._answer(self, document, stats, explain)

            def log_message(self, *_: object) -> None:
                """Nobody wants to read of each look."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.2,), name="page", daemon=True).start()

    @property
    def url(self) -> str:
        """Where it is, the token with it: not for others to see."""
        return f"{self.address}/?token={self.token}"

    @property
    def address(self) -> str:
        """Where it is, for who has the token in a header: `Authorization: Bearer ...`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _answer(
        self,
        request: BaseHTTPRequestHandler,
        document: bytes,
        stats: Callable[[], Stats],
        explain: Callable[[], list[dict[str, Any]]],
    ) -> None:
        asked = urlsplit(request.path)
        given = parse_qs(asked.query).get("token", [""])[0]
        header = request.headers.get("Authorization", "")
        given = header.removeprefix("Bearer ") if header.startswith("Bearer ") else given
        # Another site's page that has this host's name point here does not come by it.
        host = request.headers.get("Host", "").rpartition(":")[0]
        if not compare_digest(given.encode(), self.token.encode()) or host not in ("127.0.0.1", "localhost"):
            return self._send(request, HTTPStatus.FORBIDDEN, "text/plain", b"The token is missing or wrong.\n")
        match asked.path:
            case "/":
                return self._send(request, HTTPStatus.OK, "text/html", document)
            case "/stats":
                record = {**stats().record(), "protection": explain()}
                return self._send(request, HTTPStatus.OK, "application/json", json.dumps(record).encode())
            case "/metrics":
                return self._send(request, HTTPStatus.OK, "text/plain; version=0.0.4", metrics(stats()).encode())
        return self._send(request, HTTPStatus.NOT_FOUND, "text/plain", b"There are /, /stats and /metrics.\n")

    @staticmethod
    def _send(request: BaseHTTPRequestHandler, status: HTTPStatus, kind: str, body: bytes) -> None:
        request.send_response(status)
        request.send_header("Content-Type", f"{kind}; charset=utf-8" if ";" not in kind else kind)
        request.send_header("Content-Length", str(len(body)))
        request.send_header("Cache-Control", "no-store")
        request.send_header("Referrer-Policy", "no-referrer")
        request.send_header("X-Content-Type-Options", "nosniff")
        policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
        request.send_header("Content-Security-Policy", policy)
        request.end_headers()
        request.wfile.write(body)

    def close(self) -> None:
        """Serves no more."""
        self._server.shutdown()
        self._server.server_close()


def metrics(stats: Stats) -> str:
    """The numbers in Prometheus's text format (exposition format 0.0.4)."""
    lines: list[str] = []

    def family(name: str, kind: str, what: str, samples: list[tuple[dict[str, str], float]]) -> None:
        lines.append(f"# HELP gambeson_farm_{name} {what}")
        lines.append(f"# TYPE gambeson_farm_{name} {kind}")
        for labels, value in samples:
            listed = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"gambeson_farm_{name}{{{listed}}} {value}" if listed else f"gambeson_farm_{name} {value}")

    family("workers", "gauge", "Workers that are there.", [({}, len(stats.workers))])
    family("tasks_waiting", "gauge", "Tasks that no worker has.", [({}, stats.waiting)])
    family("tasks_recovered_total", "counter", "Tasks that lost workers had.", [({}, stats.recovered)])
    family("tasks_retried_total", "counter", "Tasks that were tried again.", [({}, stats.retried)])
    family("tasks_verified_total", "counter", "Tasks that workers agreed upon.", [({}, stats.verified)])
    family("tasks_recalled_total", "counter", "Tasks whose results the journal had.", [({}, stats.recalled)])
    family("tasks_speculated_total", "counter", "Slow tasks that a second worker was given.", [({}, stats.speculated)])
    workers = [({"worker": one.name, "host": one.host}, one) for one in stats.workers]
    family("worker_tasks_total", "counter", "Tasks that a worker returned.", [(at, one.tasks) for at, one in workers])
    family("worker_sealed_total", "counter", "Tasks that went to it sealed.", [(at, one.sealed) for at, one in workers])
    family("worker_busy_seconds_total", "counter", "Time of its tasks.", [(at, one.busy) for at, one in workers])
    family("worker_in_flight", "gauge", "Tasks that it has.", [(at, one.in_flight) for at, one in workers])
    stages = [({"stage": one.name}, one) for one in stats.stages]
    family("stage_items_total", "counter", "Items of a stage.", [(at, one.items) for at, one in stages])
    family("stage_busy_seconds_total", "counter", "Time of its items.", [(at, one.busy) for at, one in stages])
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
