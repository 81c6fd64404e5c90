"""What a secret is: the keys it stands under, what is none in spite of its key, and sums that tell numbers apart."""

from __future__ import annotations

import math
import re
from collections import Counter

MASK = "[redacted]"

KEYS: tuple[str, ...] = (
    *("authorization", "proxy_authorization", "auth", "cookie", "cookies", "set_cookie", "session", "session_id"),
    *("password", "passwords", "passwd", "passphrase", "passcode", "pass", "pwd", "pw", "pin", "otp", "totp"),
    *("passwort", "kennwort", "geheimnis", "zugangsdaten", "kartennummer"),
    *("mot_de_passe", "mdp", "jeton", "contraseña", "contrasena", "clave_secreta", "clave_acceso"),
    *(
        "senha",
        "wachtwoord",
        "hasło",
        "haslo",
        "lösenord",
        "losenord",
        "пароль",
        "密码",
        "密碼",
        "パスワード",
        "비밀번호",
    ),
    *("requirepass", "masterauth", "storepass", "keypass", "userpassword"),
    *("credential", "credentials", "secret", "secrets", "client_secret", "token", "jwt", "bearer"),
    *("api_key", "access_key", "account_key", "private_key", "secret_key", "session_key", "signing_key"),
    *("encryption_key", "shared_key", "license_key", "master_key", "webhook_url", "connection_string"),
    *("access_key_id", "secret_id", "sig", "amz_signature", "goog_signature", "signature_key"),
    *("subscription_key", "functions_key", "integration_key", "hmac_key", "api_keys", "apikeys"),
    *("code_verifier", "client_assertion", "device_code", "saml_response", "saml_assertion", "seed_phrase"),
    *("csrf", "xsrf", "phpsessid"),
    *("card_number", "cvv", "cvc", "cvv2", "cvc2", "security_code", "ssn", "social_security_number", "iban"),
)
SUFFIXES = frozenset({"hash", "value", "confirm", "confirmation", "repeat", "again", "old", "new", "current", "plain"})
"""What may follow the last word of a key: `password_confirmation`, `tokenValue`, `password2`."""
WEAK = frozenset(
    {"auth", "bearer", "cookie", "cookies", "cvc", "iban", "otp", "pass", "pin", "session", "sessionid", "sig"}
    | {"credential", "credentials", "jwt", "passwords", "secret", "secrets", "token", "totp"}
    | {"csrf", "xsrf", "jeton", "geheimnis"}
)
"""Words of prose, too: in the middle of a line, `token: x` is one only where x does not look like a word."""

NOTHING = frozenset({"", "none", "null", "nil", "true", "false", "undefined", "[]", "{}", "()", MASK})
"""Under a secret key and yet no secret; that a password is missing may be the whole story."""

STEMS: tuple[str, ...] = (
    *("pass", "pw", "kennwort", "pin", "otp", "auth", "cred", "cookie", "session", "secret", "token", "jwt", "bearer"),
    *("key", "webhook", "connection", "sig", "card", "cvv", "cvc", "ssn", "social", "iban"),
    *("geheimnis", "zugangs", "karten", "mdp", "mot", "jeton", "contrase", "clave", "senha", "wachtwoord"),
    *(
        "hasło",
        "haslo",
        "senord",
        "пароль",
        "密码",
        "密碼",
        "パスワード",
        "비밀번호",
        "masterauth",
        "verifier",
        "assertion",
        "device",
    ),
    *("saml", "seed", "csrf", "xsrf", "phpsess", "code"),
)
"""Each of KEYS has one of these in it: what is looked for first."""


def folded(key: str) -> str:
    """A key without what differs between ways to write it."""
    return re.sub(r"[\W_]", "", key).lower()


def stems_of(keys: tuple[str, ...]) -> tuple[str, ...]:
    """What to look for, to find keys of a user: how each begins, as he may write `patient_id` or `patientId`."""
    return tuple({folded(key)[:3] for key in keys} - {""})


def hidden_url(url: str) -> str:
    """The URL of a notifier, as far as it may be shown: its scheme, and its host where that is no key itself."""
    scheme, is_url, rest = url.partition("://")
    if not is_url:
        return MASK
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2] if _NAMES_A_HOST.fullmatch(scheme) else ""
    more = "" if rest == host else f"/{MASK}" if host else MASK
    return f"{scheme}://{host}{more}"


_NAMES_A_HOST = re.compile(r"(?:alertmanager|webhook)\+https?")


def is_card(number: str) -> bool:
    """Luhn's sum: what tells a card number from most other long numbers."""
    digits = [int(digit) for digit in number if digit.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def is_iban(text: str) -> bool:
    """The check digits of ISO 13616."""
    plain = "".join(text.split()).upper()
    if not 15 <= len(plain) <= 34 or not plain.isalnum() or not plain.isascii():
        return False
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


def is_ssn(text: str) -> bool:
    """A number that the United States could have given to somebody."""
    area, group, serial = text.split("-")
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def is_random(text: str, least: float) -> bool:
    """Whether its characters are as mixed as those of a key."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts) >= least
