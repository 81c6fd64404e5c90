"""Secrets as people and libraries write them, put down one by one while somebody tried to get past the redactor."""

from __future__ import annotations

import json
import pickle
from base64 import b64encode

import msgspec
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
    f"https://x.org/reset/{S}",
    f"KeyError: '{S}'",
    f"parole: {S}",
    f"p\u0430ssword={S}",
    f"On instance['password']:\n    '{S}'",
    f"binding parameter [2] as [VARCHAR] - [{S}]",
)
"""What cannot be told, or not yet; docs/reference/redaction.md says so."""

SQL = "[SQL: INSERT INTO users (email, password) VALUES"
BASE64 = "YW5uOmh1bnRlcjJYcTk"
AS_SOFTWARE_WRITES_THEM = {
    "SQLAlchemy, in order": f"{SQL} (?, ?)]\n[parameters: ('ann@x.org', '{S}')]",
    "SQLAlchemy, many rows": f"{SQL} ($1, $2)]\n[parameters: [('ann@x.org', 'x'), ('ben@x.org', '{S}')]]",
    "SQLAlchemy, an update": f"[SQL: UPDATE users SET name=?, password=? WHERE id = ?]\n[parameters: ('a', '{S}', 7)]",
    "SQL, a row": f"INSERT INTO users (name, password) VALUES ('ann', '{S}')",
    "SQL, the second row": f"INSERT INTO \"users\" (\"name\", \"password_hash\") VALUES ('ann', 'x'), ('ben', '{S}');",
    "SQL, cut off": f"INSERT INTO users (name, password) VALUES ('ann', '{S}",
    "CSV": f"id,user,password\n1,ann,{S}\n",
    "CSV with quotes": f'"id";"password";"user"\r\n"1";"{S}";"ann"\r\n',
    "FastAPI": f'{{"detail":[{{"type":"too_short","loc":["body","password"],"msg":"short","input":"{S}"}}]}}',
    "a Digest": f'sent Authorization: Digest username="ann", realm="x", response="{S}"',
    "a Hawk": f'sent authorization: Hawk id="dh37", ts="13", mac="{S}="',
    "an unknown scheme": f"got Authorization: ApiKey {S} back",
    "AWS": f"AWS4-HMAC-SHA256 Credential=x/aws4_request, SignedHeaders=host, Signature={S}0a1b2c3d4e5f",
    "Rust": f'Config {{ user: "ann", password: Some("{S}"), port: 1 }}',
    "Rust, pretty": f'Config {{\n    password: Some(\n        "{S}",\n    ),\n}}',
    "PHP, var_dump": f'array(1) {{\n  ["password"]=>\n  string(10) "{S}"\n}}',
    "PHP, serialize": f'a:1:{{s:8:"password";s:10:"{S}";}}',
    "Erlang": f'[{{user,<<"ann">>}},{{password,<<"{S}">>}}]',
    "Node, raw headers": f"rawHeaders: [ 'Host', 'x', 'X-Api-Key', '{S}', 'Accept', '*/*' ]",
    "Terraform": f'  ~ password             = "old" -> "{S}"\n',
    "a heredoc": f"  secret = <<EOT\n{S}\nEOT\n",
    "YAML, an indented block": f"password: |2-\n  {S}\nuser: ann\n",
    "YAML, a tag": f"password: !vault |\n  {S}\nuser: ann\n",
    "YAML, on the next line": f"password:\n  {S}\nuser: ann\n",
    "YAML, a list": f"passwords:\n  - x\n  - {S}\nuser: ann\n",
    "XML, elements side by side": f"<p><name>db.password</name><value>{S}</value></p>",
    "a list of properties": f"<dict><key>password</key><string>{S}</string></dict>",
    "XML, a value before its name": f'<property value="{S}" name="password"/>',
    "HTML, entities": f"&lt;password&gt;{S}&lt;/password&gt;",
    "HTML, quotes": f"{{&#x27;password&#x27;: &#x27;{S}&#x27;}}",
    "quotes as escapes": f'{{"p":"{{\\u0022password\\u0022:\\u0022{S}\\u0022}}"}}',
    "a key in escapes": f"%70assword={S}&x=1",
    "a key in brackets": f"user%5Bpassword%5D={S}&x=1",
    "encoded twice": f"next=https%253A%252F%252Fx%252F%253Ftoken%253D{S}",
    "JSON with a comment": f'{{"password" /* now */ : "{S}"}}',
    "a form without quotes": f"--b\r\nContent-Disposition: form-data; name=password\r\n\r\n{S}\r\n--b--",
    "LDIF": f"dn: cn=ann\nuserPassword:: {BASE64}{S}==\n",
    "a password, told": f"login failed for ann with password {S}",
    "a password in brackets": f"login failed for [ann] password [{S}]",
    "a comparison": f"AssertionError: password != '{S}'",
    "netrc": f"machine x.org login ann password {S}",
    "mysql": f"Command 'mysqldump -u root -p{S} shop' returned 2",
    "mysql, a list": f"['mysqldump', '-uroot', '-p{S}', 'shop']",
    "docker login": f"docker login -u ann -p {S} registry.x.org",
    "redis-cli": f"redis-cli -h cache -a {S} ping",
    "redis.conf": f"port 6379\nrequirepass {S}\n",
    "AUTH of Redis": f"-> AUTH default {S}\n",
    "AUTH of SMTP": f"send: 'AUTH PLAIN {BASE64}{S}\\r\\n'",
    "PASS of FTP": f"*cmd* 'PASS {S}'",
    "LOGIN of IMAP": f"BAD [b'a1 LOGIN ann@x.org {S}']",
    "openssl": f"openssl rsa -in k.pem -passin pass:{S} -out o.pem",
    "a login in a stack": f'    client.login("ann", "{S}")',
    "PDO": f"#0 /app/db.php(12): PDO->__construct('mysql:host=db;d...', 'root', '{S}')",
    "Oracle": f"jdbc:oracle:thin:ann/{S}@//db:1521/ORCL",
    "no scheme": f"cannot connect to ann:{S}@db.internal:5432",
    "a private key, line by line": f"['-----BEGIN PRIVATE KEY-----', 'MIIE{S}', '-----END PRIVATE KEY-----']",
    "French": f'{{"mot_de_passe": "{S}"}}',
    "Spanish": f'{{"contrase\\u00f1a": "{S}"}}',
    "Chinese": f"密码: {S}",
    "a second one": f'{{"password2": "{S}"}}',
    "confirmed": f'{{"passwordConfirmation": "{S}"}}',
    "a hash": f'{{"password_hash": "{S}"}}',
    "bcrypt": f"user ann $2b$12${S}{'a1B2c3D4' * 5}xyz stored",
}

HARMLESS = (
    "    token = tokens[0]",
    '    password = getpass.getpass("password: ")',
    '    password: str = field(default="")',
    '    headers = {"Authorization": f"Bearer {token}"}',
    'password := os.Getenv("PASSWORD")',
    "$password = $_POST['password'];",
    'var password = configuration["Db:Password"];',
    '    if token == "ADD":',
    "UPDATE users SET password = ? WHERE id = ?",
    "SELECT * FROM t WHERE a = $1 AND token = $2",
    "INSERT INTO users (email, password) VALUES (%(email)s, %(password)s)",
    "as its owner: `CREATE SCHEMA redrive AUTHORIZATION user_of_test_1`",
    "CREATE USER app2 PASSWORD %s",
    "ALTER TABLE tokens ADD COLUMN token_v2 varchar(64)",
    "GRANT USAGE ON SCHEMA auth TO role_4",
    "the api key v2 endpoint answered 503 in 1.2s",
    "session 7f3a2b closed after 30s",
    "token bucket shard3 is empty",
    "password policy p2 is not met: rule 3",
    "secret store vault2 does not answer",
    "INSERT INTO results (suite, pass, fail) VALUES ('unit', 312, 4)",
    "[SQL: SELECT id, password FROM users WHERE email = ?]\n[parameters: ('ann17@x.org',)]",
    "{'password': ['This password is too common.']}",
    '{"properties": {"password": {"type": "string", "minLength": 12}}}',
    '{"vary": ["Authorization", "Accept-Encoding"]}',
    '{"detail":[{"type":"missing","loc":["body","password"],"msg":"x","input":{"user":"ann"}}]}',
    "Authorization: missing header",
    "docker login succeeded",
    "mysql -h db2 -P 3306 shop",
    "PASS src/a1.test.js",
    "AUTH failed for 10.0.0.1",
    "suite,pass,fail\nunit,312,4\n",
    "passwords:\n  min: 8\n  max: 20\n",
    "password must be 12 characters, base64-encoded",
    "order 4711 0815 2342 1337 shipped",
    "shop-user:v12 pulled",
)
"""What somebody who looks for the reason of a failure has to read."""


@pytest.mark.parametrize("text", MASKED)
def test_it_is_masked(text: str) -> None:
    assert S not in Redactor().body(text.encode())


PAIRS = {"user": "ann", "password": S}
AS_BYTES = {
    "pickle of protocol 2": pickle.dumps(PAIRS, 2),
    "pickle": pickle.dumps(PAIRS),
    "CBOR": b"\xa2duserhannsmithhpasswordj" + S.encode(),
    "MessagePack in MessagePack": msgspec.msgpack.encode({"payload": msgspec.msgpack.encode(PAIRS)}),
    "MessagePack, a stream": b"\x01" + msgspec.msgpack.encode(PAIRS),
    "MessagePack, cut off": msgspec.msgpack.encode(PAIRS | {"z": "x" * 400})[:100],
    "JSON in Base64": b64encode(json.dumps(PAIRS).encode()),
    "a task of Celery": json.dumps({"body": b64encode(json.dumps([[], PAIRS, {}]).encode()).decode()}).encode(),
    "wide letters": f"ｐａｓｓｗｏｒｄ：{S}".encode(),
    "letters that are not seen": f"pa\u200bss\u200cword: {S}".encode(),
    "spaces that do not break": f"password\u00a0=\u00a0{S}".encode(),
    "quotes of a typesetter": f"“password”: “{S}”".encode(),
}


@pytest.mark.parametrize("name", AS_BYTES)
def test_it_is_masked_in_bytes(name: str) -> None:
    shown, wrapped = Redactor().body(AS_BYTES[name]), b64encode(json.dumps(PAIRS).encode()).decode()
    assert S not in shown
    assert S.encode().hex(" ")[:23] not in shown
    assert wrapped[20:40] not in shown


@pytest.mark.parametrize("name", AS_SOFTWARE_WRITES_THEM)
def test_it_is_masked_as_software_writes_it(name: str) -> None:
    assert S not in Redactor().body(AS_SOFTWARE_WRITES_THEM[name].encode())


@pytest.mark.parametrize("text", HARMLESS)
def test_it_stays_readable(text: str) -> None:
    assert Redactor().body(text.encode()) == text


def test_many_keys_are_no_way_to_be_slow() -> None:
    """Behind so many that nobody writes them but for that, all is masked."""
    shown = Redactor().text("password=a " * 3000 + S)
    assert S not in shown
    assert shown.count("password") == 2048


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
