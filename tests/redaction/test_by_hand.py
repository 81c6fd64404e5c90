"""Secrets as people and libraries write them, put down one by one while somebody tried to get past the redactor."""

from __future__ import annotations

import pytest

from redrive.forensics.redact import Redactor

S = "hunter2Xq9"
FIELD = "1 validation error for Login\npassword\n  String is short [type=short, input_value="
KEY = "-----BEGIN OPENSSH PRIVATE"
MASKED = (
    f"the password is {S}",
    f"curl -u ann:{S} https://x.org",
    f"PGPASSWORD={S} psql -h x",
    f"Authorization: Token {S}",
    f"auth=('ann', '{S}')",
    f"Cookie: sid={S}; theme=dark",
    f"set-cookie: session={S}; Path=/",
    f'<add key="Password" value="{S}"/>',
    f"Login(name='ann', password=b'{S}')",
    f"ALTER USER ann WITH PASSWORD '{S}'",
    f"CREATE USER ann IDENTIFIED BY '{S}'",
    f"user/password: ann/{S}",
    f"Passwort: {S}",
    f"ldap bind dn=cn=x pw={S}",
    f"x-api-key:{S}",
    f"https://x.org/#access_token={S}&x=1",
    f'{{"headers":[["authorization","Bearer {S}"]]}}',
    f"- name: DB_PASSWORD\n  value: {S}\n",
    f'password = """{S}"""',
    f"Invalid credentials: ann:{S}",
    f"{FIELD}'{S}', input_type=str]",
    f"duplicate key value violates a constraint: Key (token)=({S}) already exists.",
    f"token=%22{S}%22",
    f"&quot;password&quot;:&quot;{S}&quot;",
    f"{KEY} KEY-----\\nabc{S}\\n-----END",
)
NOT_MASKED = (
    f"mysql -p{S}",
    f"INSERT INTO users (name, password) VALUES ('ann', '{S}')",
    f"https://x.org/reset/{S}",
    f"KeyError: '{S}'",
    f"密码: {S}",
)
"""What cannot be told, or not yet; docs/reference/redaction.md says so."""


@pytest.mark.parametrize("text", MASKED)
def test_it_is_masked(text: str) -> None:
    assert S not in Redactor().body(text.encode())


@pytest.mark.parametrize("text", NOT_MASKED)
def test_it_is_a_gap_that_is_written_down(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "the password is wrong",
        "the token was refused",
        "docker run -u 1000:1000 shop",
        "len(password) = 8 and (token)",
        "name: password_length\n  value: 8",
    ],
)
def test_it_is_no_secret(text: str) -> None:
    assert Redactor().text(text) == text
