"""Who may connect, and what a page may load.

Two checks guard against other sites in the visitor's own browser. The Host header must be an
address, `localhost` or a name that was allowed, so that a foreign name which resolves to this
machine gets nothing. The Origin of a socket must be the page's own or one that was allowed; a
socket without an Origin comes from no page of ours and is refused as well.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}


class Gate:
    """Middleware in front of everything."""

    def __init__(self, app: ASGIApp, allowed_origins: tuple[str, ...] = ()) -> None:
        self._app = app
        self._origins = frozenset(_normal(origin) for origin in allowed_origins)
        self._hosts = frozenset(urlsplit(origin).hostname for origin in self._origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        allowed = self._knows(host)
        if scope["type"] == "websocket":
            if not allowed or not self._is_own(headers.getlist("origin"), host, scope):
                # before it is accepted: the client sees status 403 and no socket
                await WebSocket(scope, receive, send).close()
                return
            await self._app(scope, receive, send)
            return
        if not allowed:
            await PlainTextResponse("unknown host", 400)(scope, receive, send)
            return
        await self._app(scope, receive, _with_headers(send))

    def _knows(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return name == "localhost" or name in self._hosts or _is_address(name)

    def _is_own(self, origins: list[str], host: str, scope: Scope) -> bool:
        if len(origins) != 1:
            return False
        scheme = "https" if scope.get("scheme") == "wss" else "http"
        try:
            origin = _normal(origins[0])
        except ValueError:
            return False
        return origin == _normal(f"{scheme}://{host}") or origin in self._origins


def _is_address(name: str | None) -> bool:
    try:
        ipaddress.ip_address(name or "")
    except ValueError:
        return False
    return True


def _normal(origin: str) -> str:
    """An origin with its port written out, in small letters; ValueError where it is none."""
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise ValueError(f"{origin!r} is no origin: expected such as 'https://example.org:8000'")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def check_origin(text: str) -> str:
    """An origin as an option gives it."""
    _normal(text)
    return text


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Any = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return wrapped
