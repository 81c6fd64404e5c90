"""10,000 texts without a secret, the same in each run: what a redactor must leave alone to be of use."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from random import Random
from uuid import UUID

_EACH = 500
_NAMES = ("Ann", "Ben", "Chloé", "Dmitri", "Eva", "Farid", "Grace", "Hiro", "Ines", "Jörg")
_SUBJECTS = (
    "The token",
    "A session",
    "The password",
    "Our API",
    "This key",
    "The pass",
    "A secret",
    "The cookie",
    "The pin",
)
_VERBS = (
    "was refused by",
    "is not accepted by",
    "has expired at",
    "must be renewed by",
    "could not be read by",
    "belongs to",
)
_PLACES = (
    "the gateway",
    "the bank",
    "our partner",
    "the login page",
    "a worker in Berlin",
    "the mail server",
    "the shop",
)
_TAILS = (
    "again",
    "since Monday",
    "because of the upgrade",
    "as the manual says",
    "for the third time",
    "without a reason",
)
_GERMAN = ("Der Auftrag", "Die Rechnung", "Das Passwort", "Der Schlüssel", "Die Sitzung", "Der Kunde", "Das Zeichen")
_GERMAN_TAILS = (
    "wurde nicht gefunden",
    "ist abgelaufen",
    "muss geändert werden",
    "passt nicht zur Größe",
    "fehlt im Feld",
)
_CHINESE = (
    "订单已被拒绝",
    "密码必须至少有八个字符",
    "会话已过期",
    "客户没有找到",
    "请再试一次",
    "令牌无效",
    "服务器没有回答",
)
_ERRORS = (
    "ValueError",
    "KeyError",
    "TimeoutError",
    "ConnectionRefusedError",
    "shop.errors.StockMissing",
    "OperationalError",
)
_HARMLESS_KEYS = (
    *("token_count", "max_tokens", "password_length", "session_count", "passed", "author", "pass_rate", "key", "keys"),
    *("secretary", "pinned", "authorized", "compass", "tokenizer", "key_id", "primary_key", "foreign_key", "passenger"),
    *(
        "monkey",
        "cookie_consent",
        "password_changed_at",
        "token_expires_in",
        "shipping",
        "signature_algorithm",
        "passport_type",
    ),
)
_DAYS = ("2026-01-02", "2025-12-31T23:59:59Z", "Fri, 02 Jan 2026 10:00:00 GMT", "02.01.2026 10:15", "20260102T101500Z")
_PATHS = (
    "/srv/shop/pay.py",
    "/usr/lib/python3.11/asyncio/base_events.py",
    "C:\\\\shop\\\\auth.py",
    "/srv/auth/session.py",
)


def _hex(rng: Random, count: int) -> str:
    return f"{rng.getrandbits(count * 4):0{count}x}"


def _uuid(rng: Random) -> str:
    return str(UUID(int=rng.getrandbits(128), version=4))


def _prose(rng: Random) -> str:
    said = f"{rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} {rng.choice(_PLACES)} {rng.choice(_TAILS)}."
    subject = rng.choice(_SUBJECTS).lower()
    more = f" {rng.choice(_NAMES)} will look at it: {subject} of order {rng.randrange(10**6)} is next."
    return said + rng.choice(("", more))


def _messages(rng: Random) -> str:
    return rng.choice(
        (
            f"Unexpected token: {rng.choice(('foo', 'end of file', '<', '}', 'name'))} at line {rng.randrange(500)}",
            f"invalid token {rng.choice('<>{}')!r} in JSON at position {rng.randrange(9999)}",
            f"password authentication failed for user {rng.choice(_NAMES)!r}",
            f"Wrong password: {rng.choice(('please try again', 'too short', 'must have a digit', 'not accepted'))}",
            f"authentication failed: {rng.choice(('timeout', 'no such user', 'unknown realm', 'account is locked'))}",
            f"secret not found: {rng.choice(('team/app', 'default', 'see the manual'))}",
            f"session {rng.choice(('expired', 'closed', 'not found', 'timed out'))} after {rng.randrange(60)} s",
            f"missing header: authorization required for /orders/{rng.randrange(999)}",
            f"API key: {rng.choice(('missing', 'invalid', 'not given', 'expired'))}",
            f"the pin is {rng.choice(('wrong', 'too long', 'locked'))}; {rng.randrange(3)} tries left",
            f"tokens: {rng.randrange(9999)} of {rng.randrange(9999)} used, cookies: {rng.choice(('yes', 'no'))}",
            f"pass {rng.randrange(9)} of {rng.randrange(9)}: {rng.choice(('ok', 'failed', 'skipped'))}",
        )
    )


def _ids(rng: Random) -> str:
    day = f"2026-0{rng.randrange(1, 9)}-1{rng.randrange(9)}"
    return rng.choice(
        (
            f"order {rng.randrange(10**9)} of customer C-{rng.randrange(10**6):06}",
            f"ORD-{day}-{rng.randrange(10**6):06}",
            f"invoice INV{rng.randrange(10**10):010} / {rng.randrange(100)}",
            f"message {rng.randrange(10**19)} partition {rng.randrange(64)} offset {rng.randrange(10**12)}",
            f"pod orders-worker-{_hex(rng, 10)}-{''.join(rng.choices('bcdfghjklmnpqrstvwxz2456789', k=5))}",
            f"trace 00-{_hex(rng, 32)}-{_hex(rng, 16)}-01",
            f"arn:aws:sqs:eu-west-1:{rng.randrange(10**12):012}:orders-{rng.randrange(99)}",
            f"i-{_hex(rng, 17)} in subnet-{_hex(rng, 17)}",
            f"task {_uuid(rng)} retry {rng.randrange(9)}",
            f"ObjectId('{_hex(rng, 24)}')",
            f"https://shop.example.org/orders/{rng.randrange(10**9)}?page={rng.randrange(9)}&size=50#top",
            f"ann{rng.randrange(99)}@example.org at 10.0.{rng.randrange(255)}.7:{rng.randrange(65535)}",
        )
    )


def _hashes(rng: Random) -> str:
    return rng.choice(
        (
            f"sha256:{_hex(rng, 64)}",
            f"commit {_hex(rng, 40)}",
            f'etag: "{_hex(rng, 32)}"',
            f"image registry.example.org/shop/api@sha256:{_hex(rng, 64)}",
            f"{_hex(rng, 32)}  ./file-{rng.randrange(99)}.csv",
            f"content-md5: {b64encode(rng.randbytes(16)).decode()}",
            f"fingerprint SHA256:{b64encode(rng.randbytes(32)).decode().rstrip('=')}",
            f"index {_hex(rng, 7)}..{_hex(rng, 7)} 100644",
            f'{{"digest":"{_hex(rng, 40)}","blob":"{_hex(rng, 64)}"}}',
            f"sha512-{b64encode(rng.randbytes(64)).decode()}",
        )
    )


def _numbers(rng: Random) -> str:
    return rng.choice(
        (
            f"{rng.uniform(-1e6, 1e6):.6f} {rng.randrange(10**12)} {rng.random():.12e}",
            f"total {rng.randrange(10**6)},{rng.randrange(100):02} EUR",
            f"epoch {rng.randrange(1_500_000_000_000, 1_900_000_000_000)} ms",
            f"[{', '.join(str(rng.randrange(10**4)) for _ in range(20))}]",
            f"+49 30 {rng.randrange(10**7)} / (0{rng.randrange(100, 999)}) {rng.randrange(10**6)}",
            f"{rng.randrange(1 << 40)} of {rng.randrange(1 << 40)} bytes, {rng.random():.1%}",
            f"EAN {rng.randrange(10**13):013}",
            f"lat {rng.uniform(-90, 90):.7f}, lon {rng.uniform(-180, 180):.7f}",
            f"v{rng.randrange(9)}.{rng.randrange(99)}.{rng.randrange(999)}-rc{rng.randrange(9)}+build.{_hex(rng, 7)}",
            f"ISBN 978-3-{rng.randrange(10**5):05}-{rng.randrange(10**3):03}-{rng.randrange(9)}",
        )
    )


def _dates(rng: Random) -> str:
    days, time = rng.randrange(99), f"{rng.randrange(24):02}:{rng.randrange(60):02}"
    return f"{rng.choice(_DAYS)} until {rng.choice(_DAYS)} ({days} days, {time})"


def _json_body(rng: Random) -> str:
    return json.dumps(
        {
            "id": rng.choice((_uuid(rng), rng.randrange(10**9))),
            rng.choice(_HARMLESS_KEYS): rng.choice(
                (rng.randrange(10**6), _prose(rng), True, _uuid(rng), rng.choice(_DAYS))
            ),
            "customer": {"name": rng.choice(_NAMES), "city": "Köln", "vip": None},
            "lines": [{"sku": _sku(rng), "count": rng.randrange(9), "price": round(rng.random() * 100, 2)}],
            "note": _prose(rng),
        },
        ensure_ascii=rng.random() < 0.5,
        indent=rng.choice((None, 2)),
    )


def _nothing_there(rng: Random) -> str:
    key = rng.choice(("password", "token", "api_key", "secret", "auth", "session"))
    nothing = rng.choice(("None", "null", "", "false", "undefined", '""'))
    return rng.choice(
        (f"{key}={nothing}", f'{{"{key}": {nothing or "null"}, "n": 1}}', f"call({key}=None, n={rng.randrange(9)})")
    )


def _sku(rng: Random) -> str:
    letters = "".join(rng.choices("ABCDEFGHJKLMNPRSTUVWXYZ", k=3))
    return rng.choice(
        (
            f"{letters}-{rng.randrange(10**5):05}-{rng.choice(('XL', 'S', 'M', 'RED', 'EU'))}",
            f"{letters}{rng.randrange(10**6):06}",
            f"SKU{rng.randrange(10**8):08}{letters}",
            f"{letters}/{rng.randrange(10**4)}.{rng.randrange(99)}",
            f"sk-{rng.choice(('chair', 'table'))}-{rng.choice(('oak', 'steel'))}-{rng.randrange(999)}-large-edition",
            f"key-{rng.randrange(10**4)}-{letters.lower()}",
            f"hf_{letters.lower()}_{rng.randrange(99)}",
            f"SG.{letters}.{rng.randrange(999)}",
        )
    )


def _products(rng: Random) -> str:
    return f"{rng.randrange(9)} × {_sku(rng)}, {_sku(rng)} is out of stock"


def _code(rng: Random) -> str:
    name = rng.choice(("token", "session", "password", "key", "auth", "secret"))
    return rng.choice(
        (
            f"if {name} == expected_{name}: return {rng.randrange(9)}",
            f"def check_{name}({name}: str, limit: int = {rng.randrange(99)}) -> bool:",
            f"for {name} in {name}s: print(len({name}))",
            f"assert {name} is not None, 'no {name}'",
            f"SELECT id, {name}_count FROM users WHERE {name}_id IN ({rng.randrange(99)}, {rng.randrange(99)})",
            f"const {name}Length = user.{name}.length; // {rng.randrange(99)}",
            f"import {name}s.{name}_parser as parser{rng.randrange(9)}",
            f"{name} != other and {name}.startswith('x{rng.randrange(9)}')",
            f"raise {name.title()}Missing(f'{{user}} has no {name}')",
            f"self.{name}_length = max({rng.randrange(9)}, len(text))",
            f"git checkout -b feature/{name}-rotation-{rng.randrange(99)}",
            f"connect(host, {name}=settings.{name}, retries={rng.randrange(9)})",
            f"client = Client(user, {name}={name}, n={rng.randrange(9)})",
            f"{name} = get_{name}(user, default=None)  # {rng.randrange(9)}",
            f"kubectl get {name}s --namespace shop-{rng.randrange(99)}",
        )
    )


def _stack(rng: Random) -> str:
    error, path = rng.choice(_ERRORS), rng.choice(_PATHS)
    frames = "".join(
        f'  File "{path}", line {rng.randrange(999)}, in {name}\n    {line}\n'
        for name, line in rng.sample(
            (
                ("handle", "return await self._charge(order)"),
                ("check_password", "if not verify(user, password):"),
                ("authenticate", "session = await open_session(user)"),
                ("get_token", "token = self._tokens[name]"),
                ("login", "raise AuthError(user)"),
                ("parse", "secret, rest = text.split(sep, 1)"),
            ),
            3,
        )
    )
    return f"Traceback (most recent call last):\n{frames}{error}: {_messages(rng)}\n"


def _foreign_stack(rng: Random) -> str:
    return (
        f"java.lang.IllegalStateException: {_messages(rng)}\n"
        f"\tat org.acme.auth.TokenService.refreshToken(TokenService.java:{rng.randrange(900)})\n"
        f"\tat org.acme.auth.SessionFilter$1.run(SessionFilter.java:{rng.randrange(900)})\n"
        f"\t... {rng.randrange(90)} common frames omitted\nCaused by: java.io.IOException: {rng.choice(_TAILS)}\n"
    )


def _german(rng: Random) -> str:
    said = f"{rng.choice(_GERMAN)} {rng.randrange(10**6)} {rng.choice(_GERMAN_TAILS)}"
    return f"{said}: bitte {rng.choice(_NAMES)} fragen, Straße {rng.randrange(99)}."


def _chinese(rng: Random) -> str:
    return f"{rng.choice(_CHINESE)}：{rng.randrange(10**6)}，{rng.choice(_CHINESE)}。"


def _image(rng: Random) -> str:
    data = b64encode(rng.randbytes(rng.randrange(60, 600))).decode()
    return rng.choice(
        (f"data:image/png;base64,{data}", f'{{"photo": "{data}", "type": "image/jpeg"}}', f"attachment {data}")
    )


def _logs(rng: Random) -> str:
    return (
        f"{rng.choice(_DAYS)} {rng.choice(('INFO', 'WARN'))} [{_hex(rng, 16)}] shop.auth.session - {_messages(rng)} "
        f"(user_id={rng.randrange(10**6)}, took={rng.randrange(9999)}ms, key={_sku(rng)})"
    )


def _settings(rng: Random) -> str:
    return (
        f"# {_prose(rng)}\nsession_timeout: {rng.randrange(999)}\ntoken_ttl = {rng.randrange(99)}m\n"
        f"max_tokens: {rng.randrange(9999)}\npassword_min_length: 8\nauth_enabled: {rng.choice(('true', 'false'))}\n"
    )


def _xml(rng: Random) -> str:
    return (
        f'<?xml version="1.0"?><order id="{rng.randrange(10**6)}" ref="{_uuid(rng)}"><name>{rng.choice(_NAMES)}</name>'
        f"<passed>{rng.choice(('yes', 'no'))}</passed><token-count>{rng.randrange(99)}</token-count>"
        f"<sku>{_sku(rng)}</sku></order>"
    )


def _csv(rng: Random) -> str:
    rows = "\n".join(
        f"{rng.randrange(10**6)},{rng.choice(_NAMES)},{_sku(rng)},{rng.random():.2f},{_uuid(rng)}" for _ in range(4)
    )
    return f"id,name,sku,price,ref\n{rows}\n"


def _encoded(rng: Random) -> str:
    """Long random texts that are no secrets: cursors, ids of mails, slugs, cache keys."""
    return rng.choice(
        (
            f"cursor={b64encode(rng.randbytes(rng.randrange(12, 60))).decode()}",
            f"Message-ID: <{_hex(rng, 20)}.{rng.randrange(10**9)}@mail.example.org>",
            f"slug how-to-reset-your-password-in-{rng.randrange(2000, 2030)}-and-why-tokens-expire",
            f"cache hit shop:v{rng.randrange(9)}:product:{_sku(rng)}:{_hex(rng, 12)}",
            f"file report_{rng.randrange(10**8)}_{_hex(rng, 8)}_final_version.pdf",
            f"queue acme.orders.priority-{rng.randrange(9)}.retry.{rng.randrange(3600)}s",
            f"ulid 01{''.join(rng.choices('0123456789ABCDEFGHJKMNPQRSTVWXYZ', k=24))}",
            f"com.acme.shop.orders.internal.OrderTokenizerFactoryBean${rng.randrange(99)}",
        )
    )


_FAMILIES: dict[str, Callable[[Random], str]] = {
    "prose about secrets": _prose,
    "error messages": _messages,
    "ids, URLs, addresses": _ids,
    "hashes and digests": _hashes,
    "numbers": _numbers,
    "dates": _dates,
    "JSON": _json_body,
    "secret keys with nothing under them": _nothing_there,
    "product codes": _products,
    "code": _code,
    "stack traces": _stack,
    "stack traces of Java": _foreign_stack,
    "German": _german,
    "Chinese": _chinese,
    "images in Base64": _image,
    "log lines": _logs,
    "settings": _settings,
    "XML": _xml,
    "CSV": _csv,
    "cursors, slugs, names": _encoded,
}


@cache
def harmless() -> list[tuple[str, str]]:
    """Each text with its family."""
    return [(name, make(Random(f"{name} {at}"))) for name, make in _FAMILIES.items() for at in range(_EACH)]
