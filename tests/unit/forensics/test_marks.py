"""A mark of a group is changed by compare-and-set, and by who may see it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from redrive.errors import ChangedMeanwhile
from redrive.forensics.marks import Marks
from redrive.stores.base import Document, Documents


class _NotForUs:
    """Documents of which one is there that whoever asks may not see: a letter of others has joined its group."""

    async def get(self, kind: str, id: str) -> Document | None:
        return None

    async def put(self, kind: str, id: str, body: dict[str, Any], *, expect: int | None = None) -> bool:
        self.tries += 1
        assert self.tries < 5, "it is tried for ever"
        return False

    tries = 0


async def test_who_may_not_see_a_mark_any_more_does_not_try_for_ever_to_change_it() -> None:
    marks = Marks(cast(Documents, _NotForUs()))
    with pytest.raises(ChangedMeanwhile, match="look at the group again"):
        await marks.change("g", lambda mark: replace(mark, assignee="ann"))
