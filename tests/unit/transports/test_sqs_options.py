"""The URL of SQS: what it says, and what is wrong with it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.errors import ConfigError
from redrive.transports.sqs.options import Options, options_of


def test_a_url_is_taken_apart() -> None:
    assert options_of("sqs://") == Options()
    assert options_of("sqs://?region=eu-central-1").region == "eu-central-1"
    assert options_of("sqs://localhost:9324?tls=false").endpoint == "http://localhost:9324"
    assert options_of("sqs://localhost").endpoint == "https://localhost"
    assert options_of("sqs://[::1]:9?tls=no").endpoint == "http://[::1]:9"
    given = options_of("sqs://KEY:s%2Fcret@host?fifo=yes&create=no&wait=20s&polls=3&prefix=prod-&profile=ops")
    assert (given.access_key, given.secret_key, given.fifo, given.create) == ("KEY", "s/cret", True, False)
    assert (given.wait, given.polls, given.prefix, given.profile) == (timedelta(seconds=20), 3, "prod-", "ops")
    assert options_of("sqs://?wait=0").wait == timedelta()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("sqs://host/queue", "has a path"),
        ("sqs://?regio=x", "did you mean 'region'"),
        ("sqs://key@host", "a key without its secret"),
        ("sqs://host:port", "cannot be used"),
        ("sqs://?fifo=maybe", "yes or no"),
        ("sqs://?wait=21s", "20 at most"),
        ("sqs://?wait=soon", "write it like 5s"),
        ("sqs://?polls=0", "from 1 to"),
        ("sqs://?prefix=a b", "letters, digits"),
    ],
)
def test_what_is_wrong_is_said(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        options_of(url)
