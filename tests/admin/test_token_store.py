"""Tokens: shown once, kept hashed, found by their id, and revoked for everybody."""

from datetime import timedelta

import msgspec
import pytest

from redrive.access.actors import Role
from redrive.access.tokens import KIND, Tokens, UnknownToken
from redrive.errors import StoreUnavailable, UsageError
from redrive.testing.clock import ManualClock
from tests.admin.conftest import Shop


async def test_a_token_opens_with_its_role(tokens: Tokens) -> None:
    made, text = await tokens.create(" ci ", Role.OPERATOR)
    found = await tokens.check(text)
    assert found is not None
    assert (found.id, found.name, found.role, found.revoked) == (made.id, "ci", Role.OPERATOR, False)


async def test_the_secret_is_stored_nowhere(shop: Shop, tokens: Tokens) -> None:
    _, text = await tokens.create("ci", Role.VIEWER)
    secret = text.split("_", 2)[2]
    documents = await shop.app.store.documents.list(KIND)
    assert len(documents) == 1
    assert secret not in msgspec.json.encode(documents).decode()
    assert "digest" not in msgspec.json.encode(await tokens.list()).decode()


@pytest.mark.parametrize("change", ["", "x", "rdr_", "rdr_abc_def", "Bearer", "rdr_\u00e9", "a" * 10_000])
async def test_what_is_no_token_opens_nothing(tokens: Tokens, change: str) -> None:
    await tokens.create("ci", Role.ADMIN)
    assert await tokens.check(change) is None


async def test_the_right_id_with_another_secret_opens_nothing(tokens: Tokens) -> None:
    _, text = await tokens.create("ci", Role.ADMIN)
    other = text[:-1] + ("A" if text[-1] != "A" else "B")
    assert await tokens.check(other) is None


async def test_a_revoked_token_opens_nothing_in_any_process(shop: Shop, tokens: Tokens) -> None:
    made, text = await tokens.create("ci", Role.ADMIN)
    another = Tokens(shop.app.store.documents, shop.app.clock)
    assert await another.check(text) is not None
    await tokens.revoke(made.id)
    await tokens.revoke(made.id)
    assert await another.check(text) is None
    assert not await tokens.any()
    assert [one.revoked for one in await tokens.list()] == [True]


async def test_two_secrets_of_a_token_open_for_as_long_as_they_overlap(shop: Shop) -> None:
    clock = ManualClock()
    tokens = Tokens(shop.app.store.documents, clock)
    made, first = await tokens.create("ci", Role.VIEWER)
    _, second = await tokens.rotate(made.id, overlap=timedelta(hours=1))
    assert [await tokens.check(text) is not None for text in (first, second)] == [True, True]
    _, third = await tokens.rotate(made.id, overlap=timedelta(hours=1))
    assert [await tokens.check(text) is not None for text in (first, second, third)] == [False, True, True]
    await clock.advance(timedelta(hours=1).total_seconds())
    assert [await tokens.check(text) is not None for text in (second, third)] == [False, True]


async def test_an_expired_token_gets_no_other_secret(shop: Shop) -> None:
    """It would open nothing, and whoever asked for it would hear so from the server only."""
    clock = ManualClock()
    tokens = Tokens(shop.app.store.documents, clock)
    made, _ = await tokens.create("ci", Role.VIEWER, expires_at=clock.now() + timedelta(hours=1))
    await clock.advance(timedelta(hours=1).total_seconds())
    with pytest.raises(UsageError, match="is expired: make another one"):
        await tokens.rotate(made.id)


async def test_revoking_what_is_not_there_says_so(tokens: Tokens) -> None:
    with pytest.raises(UnknownToken, match="redrive token list"):
        await tokens.revoke("abc")


async def test_a_token_needs_a_name(tokens: Tokens) -> None:
    with pytest.raises(UsageError, match="name"):
        await tokens.create("  ", Role.VIEWER)


async def test_the_one_time_token_lives_in_its_process_only(shop: Shop, tokens: Tokens) -> None:
    text = tokens.one_time()
    found = await tokens.check(text)
    assert found is not None
    assert found.role is Role.ADMIN
    assert await shop.app.store.documents.list(KIND) == []
    assert await Tokens(shop.app.store.documents, shop.app.clock).check(text) is None


async def test_its_use_is_noted_without_a_write_for_each_request(shop: Shop, tokens: Tokens) -> None:
    made, text = await tokens.create("ci", Role.VIEWER)
    for _ in range(3):
        await tokens.check(text)
    document = await shop.app.store.documents.get(KIND, made.id)
    assert document is not None
    assert document.version == 2  # made, and used
    (found,) = await tokens.list()
    assert found.last_used is not None
    assert shop.app.clock.now() - found.last_used < timedelta(minutes=1)


async def test_a_store_that_cannot_write_still_lets_people_see(
    shop: Shop, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text = await tokens.create("ci", Role.VIEWER)

    async def refuse(*arguments: object, **options: object) -> bool:
        raise StoreUnavailable("redrive.db", "the disk is full")

    monkeypatch.setattr(shop.app.store.documents, "put", refuse)
    assert await tokens.check(text) is not None


def test_each_role_may_do_what_those_before_it_may() -> None:
    allowed = {role: [needed for needed in Role if role.allows(needed)] for role in Role}
    assert allowed == {
        Role.VIEWER: [Role.VIEWER],
        Role.OPERATOR: [Role.VIEWER, Role.OPERATOR],
        Role.ADMIN: [Role.VIEWER, Role.OPERATOR, Role.ADMIN],
    }
