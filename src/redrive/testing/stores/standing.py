"""A store as it is opened, asked how it is, and closed."""

from __future__ import annotations

from redrive.stores.base import Store
from redrive.testing.builders import make_letter
from redrive.testing.stores.backend import ALL, StoreBackend


class Standing:
    """A store that is well says nothing; closing it twice is harmless."""

    async def test_check_says_nothing_when_all_is_well(self, store: Store) -> None:
        await store.check()

    async def test_closing_twice_is_harmless(self, store: Store, backend: StoreBackend) -> None:
        other = await backend.open()
        await other.aclose()
        await other.aclose()
        await store.letters.record([make_letter()])
        assert await store.letters.count(ALL) == 1

    async def test_letters_outlive_those_who_wrote_them(self, store: Store, backend: StoreBackend) -> None:
        await store.letters.record([make_letter()])
        await store.aclose()
        again = await backend.open()
        try:
            assert await again.letters.count(ALL) == (1 if store.features.durable else 0)
        finally:
            await again.aclose()
