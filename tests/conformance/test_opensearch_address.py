"""What a URL of OpenSearch may say, and what is wrong with one that may not be."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest

from redrive.errors import ConfigError, MissingExtra
from redrive.registry import open_store
from redrive.stores.opensearch import OpenSearchStore
from redrive.stores.opensearch.address import Options, parse_address


def test_a_url_with_everything() -> None:
    hosts, options = "a.example:9201,[::1]:9202,b", f"timeout=2s&ca={__file__}&shards=3&replicas=2&verify=false"
    address = parse_address(f"opensearch+https://ann:p%40ss@{hosts}/dead-letters?{options}")
    assert address.hosts == (("a.example", 9201), ("::1", 9202), ("b", 9200))
    assert address.login == ("ann", "p@ss")
    assert (address.https, address.index) == (True, "dead-letters")
    assert address.options == Options(timeout=timedelta(seconds=2), ca=__file__, shards=3, replicas=2, verify=False)


def test_a_url_with_as_little_as_can_be() -> None:
    address = parse_address("opensearch://search")
    assert (address.hosts, address.login, address.https) == ((("search", 9200),), None, False)
    assert (address.index, address.options) == ("redrive", Options())


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("opensearch://", "names no host"),
        ("opensearch:///redrive", "names no host"),
        ("opensearch://host:port/redrive", "names no host and port"),
        ("opensearch://host:99999/redrive", "names no host and port"),
        ("opensearch://[host/redrive", "cannot be read"),
        ("opensearch://host/Letters", "cannot be the name of an index"),
        ("opensearch://host/a/b", "cannot be the name of an index"),
        ("opensearch://host/_all", "cannot be the name of an index"),
        ("opensearch://host/a*", "cannot be the name of an index"),
        ("opensearch://host/a?timeuot=1s", "did you mean 'timeout'"),
        ("opensearch://host/a?timeout=5", "not a duration"),
        ("opensearch://host/a?timeout=0s", "more than nothing"),
        ("opensearch://host/a?shards=many", "shards"),
        ("opensearch://host/a?shards=0", "shards"),
        ("opensearch://host/a?replicas=-1", "replicas"),
        ("opensearch://host/a?verify=perhaps", "verify"),
        ("opensearch+https://host/a?ca=/nowhere.pem", "no file '/nowhere.pem'"),
    ],
)
def test_a_url_that_cannot_be_read(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_store(url)


def test_no_password_is_told() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address("opensearch://ann:secret@host:port/redrive")
    assert "secret" not in str(caught.value)


async def test_opening_says_nothing_to_anybody() -> None:
    store = open_store("opensearch://nobody.invalid:9200/redrive")
    assert isinstance(store, OpenSearchStore)
    await store.aclose()
    await store.aclose()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opensearchpy", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[opensearch\]'"):
        open_store("opensearch://host/redrive")
