"""How a consumer is a member of its group."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.transports.kafka.membership import Membership, member_name


@pytest.mark.parametrize(("lease", "seconds"), [(1, 6), (8, 8), (60, 10), (3600, 10)])
def test_a_silent_worker_is_waited_for_as_long_as_its_lease_and_ten_seconds_at_the_most(
    lease: int, seconds: int
) -> None:
    assert Membership("", "orders", timedelta(seconds=lease)).settings() == {"session.timeout.ms": seconds * 1000}


def test_a_worker_with_a_name_has_one_member_for_each_source() -> None:
    one, other = (Membership("billing-1", source, timedelta(minutes=1)) for source in ("orders", "mails"))
    assert one.settings()["group.instance.id"] == "billing-1.orders"
    assert other.settings()["group.instance.id"] == "billing-1.mails"


def test_a_name_that_another_process_has_is_lost_once() -> None:
    membership = Membership("billing", "orders", timedelta(minutes=1))
    assert membership.lose_name() == "billing.orders"
    assert membership.lose_name() is None
    assert "group.instance.id" not in membership.settings()


def test_a_session_that_is_too_short_for_a_broker_is_lengthened_to_its_end() -> None:
    membership = Membership("", "orders", timedelta(minutes=1))
    spans = []
    while membership.lengthen():
        spans.append(membership.settings()["session.timeout.ms"])
    assert spans == [20_000, 40_000, 80_000, 160_000, 300_000]


def test_names_that_brokers_do_not_take_stay_different() -> None:
    names = [member_name(worker, "orders") for worker in ("host:1", "host/1", "host-1", "ü" * 300, "ü" * 301)]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 249 and name.replace("-", "").replace(".", "").isalnum() for name in names)
    assert all(name.isascii() for name in names)
