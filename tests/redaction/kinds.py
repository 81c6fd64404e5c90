"""Secrets of the kinds that public lists of the field name (gitleaks, detect-secrets). Prefixes and lengths are facts
of their vendors; every value is made up here, the same in each run. None is written out, so that no scanner takes this
file for a leak."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from random import Random
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple

from redrive.forensics.secrets import is_card, is_iban

_ALPHABETS = {
    "a": ascii_letters + digits,
    "l": ascii_lowercase + digits,
    "c": ascii_letters,
    "A": ascii_uppercase + digits,
    "h": "0123456789abcdef",
    "H": "0123456789ABCDEF",
    "d": digits,
    "w": ascii_letters + digits + "_-",
    "b": ascii_letters + digits + "+/",
    "x": ascii_uppercase + "234567",
}
_PIECE = re.compile(r"<([a-zA-Z])(\d+)>")
_COPIES = 2
HARMLESS_KEY = "reference"


class Secret(NamedTuple):
    """One value, the key it stands under, and the parts of it that must not be seen."""

    kind: str
    key: str
    value: str
    hidden: tuple[str, ...]
    by_key: bool  # it is known by its key alone


# by their looks: under a harmless key, or under none
LOOKS = {
    "1Password key": "A3-<A6>-<A11>-<A5>-<A5>-<A5>",
    "1Password service account": "ops_eyJ<a250>",
    "Adobe": "p8e-<l32>",
    "age": "AGE-SECRET-KEY-1<A58>",
    "Airtable": "pat<a14>.<h64>",
    "Alibaba": "LTAI<a20>",
    "Anthropic": "sk-ant-api03-<w93>AA",
    "Anthropic admin": "sk-ant-admin01-<w93>AA",
    "Artifactory": "AKCp<a69>",
    "Artifactory reference": "cmVmd<a59>",
    "Atlassian": "ATATT3xFfGF0<a60>",
    "AWS key id": "AKIA<x16>",
    "AWS session key id": "ASIA<x16>",
    "AWS secret key": "<b20>9aZ<b17>",
    "AWS Bedrock": "ABSK<b120>",
    "Azure AD": "<a3>8Q~<w34>",
    "Basic": "Basic ",
    "Bearer": "Bearer <a32>",
    "Brevo": "xkeysib-<h64>-<l16>",
    "card": "",
    "card with spaces": "",
    "ClickHouse": "4b1d<a38>",
    "Clojars": "CLOJARS_<l60>",
    "Cloudflare origin": "v1.0-<h24>-<h146>",
    "Databricks": "dapi<h32>",
    "Defined Networking": "dnkey-<l26>-<l52>",
    "DigitalOcean": "dop_v1_<h64>",
    "DigitalOcean OAuth": "doo_v1_<h64>",
    "DigitalOcean refresh": "dor_v1_<h64>",
    "Discord webhook": "https://discord.com/api/webhooks/<d18>/<w68>",
    "Docker Hub": "dckr_pat_<w27>",
    "Doppler": "dp.pt.<a43>",
    "Dropbox short-lived": "sl.<w135>",
    "Duffel": "duffel_live_<w43>",
    "Dynatrace": "dt0c01.<A24>.<A64>",
    "EasyPost": "EZAK<a54>",
    "EasyPost test": "EZTK<a54>",
    "Facebook page": "EAAC<a110>",
    "Figma": "figd_<w40>",
    "Flutterwave": "FLWSECK_TEST-<h32>-X",
    "Fly.io": "fm2_<b120>",
    "Frame.io": "fio-u-<w64>",
    "GitHub": "ghp_<a36>",
    "GitHub app": "ghs_<a36>",
    "GitHub OAuth": "gho_<a36>",
    "GitHub refresh": "ghr_<a36>",
    "GitHub user": "ghu_<a36>",
    "GitHub fine-grained": "github_pat_<a22>_<a59>",
    "GitLab": "glpat-<a20>",
    "GitLab routable": "glpat-<a27>.<l9>",
    "GitLab CI job": "glcbt-<l2>_<a20>",
    "GitLab deploy": "gldt-<a20>",
    "GitLab feature flag": "glffct-<a20>",
    "GitLab feed": "glft-<a20>",
    "GitLab mail": "glimt-<a25>",
    "GitLab agent": "glagent-<a50>",
    "GitLab OAuth": "gloas-<h64>",
    "GitLab trigger": "glptt-<h40>",
    "GitLab runner": "glrt-<a20>",
    "GitLab registration": "GR1348941<a20>",
    "GitLab SCIM": "glsoat-<a20>",
    "Google API": "AIza<a35>",
    "Google client secret": "GOCSPX-<a28>",
    "Google OAuth": "ya29.<w120>",
    "Grafana": "glsa_<a32>_<h8>",
    "Grafana cloud": "glc_<a60>",
    "Grafana legacy": "eyJrIjoi<a80>",
    "Groq": "gsk_<a52>",
    "Harness": "pat.<a22>.<a24>.<a20>",
    "Heroku": "HRKU-AA<w58>",
    "Hugging Face": "hf_<c34>",
    "Hugging Face organization": "api_org_<c34>",
    "IBAN": "",
    "IBAN with spaces": "",
    "Infracost": "ico-<a32>",
    "Intra42": "s-s4t2ud-<h64>",
    "JWT": "eyJ<a30>.eyJ<a60>.<w43>",
    "JWT in Base64": "ZXlKaGJHY2lPaU<a90>",
    "Linear": "lin_api_<a40>",
    "Mailchimp": "<h32>-us12",
    "Mailgun": "key-<h32>",
    "Mapbox": "sk.eyJ<a60>.<w22>",
    "MaxMind": "<a6>_<a29>_mmk",
    "New Relic": "NRAK-<A27>",
    "New Relic browser": "NRJS-<h19>",
    "New Relic insert": "NRII-<w32>",
    "Notion": "ntn_<d11><a35>",
    "npm": "npm_<a36>",
    "NVIDIA": "nvapi-<w64>",
    "Octopus": "API-<A26>",
    "OpenAI": "sk-<a20>T3BlbkFJ<a20>",
    "OpenAI project": "sk-proj-<w58>T3BlbkFJ<w58>",
    "OpenShift": "sha256~<w43>",
    "Perplexity": "pplx-<a48>",
    "PGP private key": "",
    "Plaid": "access-production-<h8>-<h4>-<h4>-<h4>-<h12>",
    "PlanetScale": "pscale_tkn_<a43>",
    "PlanetScale password": "pscale_pw_<a43>",
    "Postman": "PMAK-<h24>-<h34>",
    "Prefect": "pnu_<a36>",
    "private key": "",
    "Pulumi": "pul-<h40>",
    "PyPI": "pypi-AgEIcHlwaS5vcmc<a80>",
    "ReadMe": "rdme_<l70>",
    "Redrive": "rdr_<l10>_<w43>",
    "Replicate": "r8_<a37>",
    "RubyGems": "rubygems_<h48>",
    "Scalingo": "tk-us-<w48>",
    "SendGrid": "SG.<w22>.<w43>",
    "Sentry organization": "sntrys_eyJpYXQiO<a60>_<a43>",
    "Sentry user": "sntryu_<h64>",
    "SettleMint": "sm_pat_<a16>",
    "Shippo": "shippo_live_<h40>",
    "Shopify": "shpat_<h32>",
    "Shopify custom": "shpca_<h32>",
    "Shopify private": "shppa_<h32>",
    "Shopify shared": "shpss_<h32>",
    "Slack app": "xapp-1-<A11>-<d13>-<h64>",
    "Slack bot": "xoxb-<d11>-<d12>-<a24>",
    "Slack refresh": "xoxe-1-<A146>",
    "Slack user": "xoxp-<d11>-<d11>-<d11>-<a32>",
    "Slack webhook": "https://hooks.slack.com/services/T<A8>/B<A10>/<a24>",
    "SonarQube": "squ_<h40>",
    "Sourcegraph": "sgp_<h16>_<h40>",
    "Square": "sq0atp-<w22>",
    "Square OAuth": "sq0csp-<w43>",
    "Square access": "EAAA<w60>",
    "SSN": "",
    "Stripe": "sk_live_<a24>",
    "Stripe restricted": "rk_live_<a24>",
    "Stripe test": "sk_test_<a24>",
    "Stripe webhook": "whsec_<a32>",
    "Supabase": "sbp_<h40>",
    "Tailscale": "tskey-auth-<a12>-<a32>",
    "Teams webhook": "https://acme.webhook.office.com/webhookb2/<h8>-<h4>-<h4>-<h4>-<h12>@<h8>-<h4>-<h4>-<h4>-<h12>"
    "/IncomingWebhook/<h32>/<h8>-<h4>-<h4>-<h4>-<h12>",
    "Telegram": "<d10>:AA<w33>",
    "Terraform Cloud": "<a14>.atlasv1.<w67>",
    "Twilio": "SK<h32>",
    "Twilio account": "AC<h32>",
    "Twitter bearer": "AAAAAAAAAAAAAAAAAAAAAA<a90>",
    "Typeform": "tfp_<w59>",
    "Vault": "hvs.<w95>",
    "Vault batch": "hvb.<w140>",
    "Vercel": "vcp_<a56>",
    "xAI": "xai-<a80>",
    "Yandex": "t1.<a24>.<w86>",
    "Yandex API": "AQVN<w37>",
    "Yandex AWS": "YC<w38>",
    "password in a URL": "postgres://ann:<a14>@db.internal:5432/shop",
    "password in a URL with / # ?": "amqp://ann:<a6>/<a6>#<a4>?<a6>@mq.internal/shop",
    "password in a URL without user": "redis://:<a14>@cache.internal:6379/0",
    "token as URL user": "https://<a40>@github.com/acme/shop.git",
    "signed URL, AWS": "https://b.s3.amazonaws.com/k.csv?X-Amz-Date=20260101T000000Z&X-Amz-Signature=<h64>",
    "signed URL, Azure": "https://b.blob.core.windows.net/c/k?sv=2024-01-01&se=2026-01-01&sp=r&sig=<a43>%3D",
    "signed URL, Google": "https://storage.googleapis.com/b/k?X-Goog-Expires=900&X-Goog-Signature=<h128>",
    "Azure connection string": "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=<b86>==;EndpointSuffix=x",
    "ADO connection string": "Server=db.internal;Database=shop;User Id=ann;Password=<a16>;Encrypt=true",
}

# by their key alone: nobody could tell the value from another one
KEYED = {
    **dict.fromkeys(("password", "db_password", "userPassword", "PGPASSWORD", "passwd", "pwd"), "<a10>"),
    **dict.fromkeys(("pass", "smtp_pass", "passcode", "passphrase", "MYSQL_ROOT_PASSWORD", "new-password"), "<l9>"),
    **dict.fromkeys(("pin", "card_pin"), "<d6>"),
    **dict.fromkeys(("otp", "totp"), "<d6>"),
    **dict.fromkeys(("cvv", "cvc"), "7<d5>"),
    **dict.fromkeys(
        ("auth", "credential", "credentials", "secret", "client_secret", "app.secret", "SECRET_KEY"), "<a24>"
    ),
    **dict.fromkeys(("token", "access_token", "refreshToken", "id_token", "X-Auth-Token", "csrf_token"), "<a32>"),
    **dict.fromkeys(("session", "session_id", "sessionid", "cookie", "jwt", "bearer"), "<h32>"),
    **dict.fromkeys(("api_key", "apikey", "apiKey", "x-api-key", "ApiKey", "API-KEY"), "<l32>"),
    **dict.fromkeys(("private_key", "signing_key", "encryption_key", "master_key", "shared_key"), "<h40>"),
    **dict.fromkeys(("account_key", "license_key", "access_key", "secret_key", "session_key"), "<a20>"),
    **dict.fromkeys(("webhook_url", "connection_string"), "https://in.example.org/<a24>"),
    **dict.fromkeys(("sig", "X-Amz-Signature", "X-Goog-Signature"), "<h64>"),
    **dict.fromkeys(("ssn", "social_security_number"), "<d9>"),
    **dict.fromkeys(("iban", "card_number"), "<A18>"),
    "adafruit_api_key": "<l32>",
    "airtable_api_key": "key<a14>",
    "algolia_api_key": "<l32>",
    "asana_client_secret": "<l32>",
    "beamer_api_key": "b_<w44>",
    "bitbucket_client_secret": "<w64>",
    "bittrex_secret_key": "<l32>",
    "cloudant_password": "<h64>",
    "cloudflare_api_key": "<h37>",
    "codecov_token": "<l32>",
    "cohere_api_key": "<a40>",
    "coinbase_access_token": "<w64>",
    "confluent_secret_key": "<l64>",
    "contentful_token": "<w43>",
    "datadog_api_key": "<h32>",
    "discord_client_secret": "<w32>",
    "drone_token": "<l32>",
    "dropbox_api_key": "<l15>",
    "etsy_access_token": "<l24>",
    "facebook_secret": "<h32>",
    "fastly_api_token": "<w32>",
    "finicity_client_secret": "<l20>",
    "finnhub_token": "<l20>",
    "flickr_access_token": "<l32>",
    "freshbooks_access_token": "<l64>",
    "gitter_token": "<w40>",
    "gocardless_token": "live_<w40>",
    "heroku_api_key": "<h8>-<h4>-<h4>-<h4>-<h12>",
    "hubspot_api_key": "<H8>-<H4>-<H4>-<H4>-<H12>",
    "ibm_cloud_api_key": "<w44>",
    "intercom_api_key": "<w60>",
    "jfrog_api_key": "<a73>",
    "kraken_secret": "<b86>",
    "kucoin_secret_key": "<h8>-<h4>-<h4>-<h4>-<h12>",
    "launchdarkly_access_token": "<w40>",
    "linkedin_client_secret": "<l16>",
    "lob_api_key": "live_<h35>",
    "looker_client_secret": "<l24>",
    "mattermost_token": "<l26>",
    "meraki_api_key": "<h40>",
    "messagebird_token": "<l25>",
    "netlify_access_token": "<w43>",
    "nytimes_api_key": "<l32>",
    "okta_access_token": "00<w40>",
    "plaid_secret": "<l30>",
    "rapidapi_key_secret": "<w50>",
    "sendbird_access_token": "<h40>",
    "snyk_token": "<h8>-<h4>-<h4>-<h4>-<h12>",
    "softlayer_api_key": "<l64>",
    "squarespace_token": "<h8>-<h4>-<h4>-<h4>-<h12>",
    "sumologic_access_token": "<a64>",
    "travis_token": "<a22>",
    "twitch_client_secret": "<l30>",
    "twitter_api_secret": "<a50>",
    "zendesk_secret_key": "<h40>",
}
ODD = {
    "with signs": ("password", "<a5>!$*(<a5>"),
    "with a comma": ("password", "<a6>,<a6>"),
    "with a semicolon": ("password", "<a6>;<a6>"),
    "with / # ?": ("password", "<a6>/<a6>#<a6>?<a6>"),
    "with quotes": ("password", "<a6>\"<a6>'<a6>"),
    "with a backslash": ("password", "<a6>\\<a6>"),
    "with & and <": ("password", "<a6>&<a6><a1><<a6>"),
    "with @ and :": ("password", "<a6>@<a6>:<a6>"),
    "with letters of other alphabets": ("password", "<a6>ßüé密码<a6>"),
    "of several words": ("passphrase", "<l7> <l7> <l7> <l7>"),
}


def secrets() -> list[Secret]:
    """All of them, in the same order and with the same values in each run."""
    return [*_looks(), *_keyed()]


def _looks() -> Iterator[Secret]:
    for kind, template in LOOKS.items():
        for copy in range(_COPIES):
            rng = Random(f"{kind} {copy}")
            made = _MADE.get(kind)
            value, hidden = made(rng) if made is not None else filled(template, rng)
            yield Secret(kind, HARMLESS_KEY, value, hidden, by_key=False)


def _keyed() -> Iterator[Secret]:
    for key, template in KEYED.items():
        value, hidden = filled(template, Random(key))
        yield Secret(f"under {key}", key, value, hidden, by_key=True)
    for kind, (key, template) in ODD.items():
        value, hidden = filled(template, Random(kind))
        yield Secret(kind, key, value, hidden, by_key=True)


def filled(template: str, rng: Random) -> tuple[str, tuple[str, ...]]:
    """The template with random characters, and those that are the secret."""
    pieces: list[str] = []

    def piece(found: re.Match[str]) -> str:
        pieces.append("".join(rng.choices(_ALPHABETS[found[1]], k=int(found[2]))))
        return pieces[-1]

    value = _PIECE.sub(piece, template)
    least = min(6, max(map(len, pieces)))
    return value, tuple(made for made in pieces if len(made) >= least)


def _card(rng: Random) -> str:
    number = rng.choice(("4", "51", "37", "6011"))
    number += "".join(rng.choices(digits, k=(14 if number == "37" else 15) - len(number)))
    return next(number + last for last in digits if is_card(number + last))


def _iban(rng: Random) -> str:
    country, length = rng.choice((("DE", 18), ("FR", 23), ("GB", 18), ("NL", 14)))
    rest = "".join(rng.choices(digits, k=length))
    bank = "".join(rng.choices(ascii_uppercase, k=4)) + rest[4:] if country in ("GB", "NL") else rest
    return next(f"{country}{sum_:02}{bank}" for sum_ in range(2, 99) if is_iban(f"{country}{sum_:02}{bank}"))


def _whole(value: str) -> tuple[str, tuple[str, ...]]:
    return value, (value,)


def _spaced(value: str) -> tuple[str, tuple[str, ...]]:
    return _whole(" ".join(value[place : place + 4] for place in range(0, len(value), 4)))


def _basic(rng: Random) -> tuple[str, tuple[str, ...]]:
    said = b64encode(f"ann:{''.join(rng.choices(ascii_letters, k=14))}".encode()).decode()
    return f"Basic {said}", (said[6:],)


def _pem(name: str) -> Callable[[Random], tuple[str, tuple[str, ...]]]:
    def made(rng: Random) -> tuple[str, tuple[str, ...]]:
        lines = tuple("".join(rng.choices(_ALPHABETS["b"], k=64)) for _ in range(6))
        return "\n".join((f"-----BEGIN {name}-----", *lines, f"-----END {name}-----")), lines

    return made


_MADE: dict[str, Callable[[Random], tuple[str, tuple[str, ...]]]] = {
    "card": lambda rng: _whole(_card(rng)),
    "card with spaces": lambda rng: _spaced("4" + _card_of_16(rng)[1:]),
    "IBAN": lambda rng: _whole(_iban(rng)),
    "IBAN with spaces": lambda rng: _spaced(_iban(rng)),
    "SSN": lambda rng: _whole(f"{rng.randrange(100, 600)}-{rng.randrange(10, 99)}-{rng.randrange(1000, 9999)}"),
    "Basic": _basic,
    "private key": _pem("RSA PRIVATE KEY"),
    "PGP private key": _pem("PGP PRIVATE KEY BLOCK"),
}


def _card_of_16(rng: Random) -> str:
    number = "4" + "".join(rng.choices(digits, k=14))
    return next(number + last for last in digits if is_card(number + last))
