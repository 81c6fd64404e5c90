"""The trail in a store: one chain for every process that has it.

A block of lines is a document whose id is the sequence of its first line, and is written only if there is none. So of
two who write at once one wins, and the other reads the winner's block and goes behind it. What comes while a block is
being written waits for the next: ten writers with much to say write larger blocks, not more of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from redrive.access.actors import Actor, Role, Via
from redrive.access.trail import (
    START,
    Broken,
    Checkpoint,
    Head,
    Line,
    Phase,
    Proof,
    Said,
    Written,
    body_of,
    chained,
    check_signature,
    read_line,
    said,
    sign,
)
from redrive.clock import Clock
from redrive.errors import UsageError
from redrive.stores.base import Document, Documents

KIND, ANCHOR, KEY, OLDER = "trail", "trail-anchor", "trail-key", "audit"
REDRIVE = Actor(id="", name="redrive", role=Role.ADMIN, via=Via.REDRIVE)
BEGAN, PRUNED = "trail begins", "trail pruned"
_BLOCK, _PAGE = 200, 500
_LONGEST_PAUSE = 0.05  # seconds, of a writer that lost


class Filter(Struct, frozen=True, kw_only=True):
    """Which lines are asked for; what is empty is not narrowed."""

    actor: str = ""  # its name or id, or a part of them
    by: Actor | None = None  # exactly that one
    action: str = ""
    outcome: Phase | None = None
    about: str = ""  # the id of a letter, a replay, a token
    since: datetime | None = None

    def takes(self, line: Line) -> bool:
        return (
            (not self.actor or self.actor in line.actor or self.actor == line.id)
            and (self.by is None or (self.by.id, str(self.by.via)) == (line.id, str(line.via)))
            and (not self.action or self.action == line.action)
            and (self.outcome is None or self.outcome is line.outcome)
            and (not self.about or self.about in line.about or self.about in line.detail)
            and (self.since is None or (at := _at(line)) is None or at >= self.since)
        )


class Verdict(Struct, frozen=True, kw_only=True):
    """What a look at the whole chain found."""

    lines: int
    first: int  # the oldest line that is kept
    head: Head
    broken: Broken | None = None
    checkpoint: int | None = None  # up to where it is proven against a place kept elsewhere
    older: int = 0  # lines from before the chain
    older_changed: bool = False

    @property
    def is_whole(self) -> bool:
        return self.broken is None and not self.older_changed


class Anchor(Struct, frozen=True, kw_only=True):
    """What retention left of the lines that it removed: the place behind which the chain goes on."""

    checkpoint: Checkpoint


_NO_ANCHOR = Checkpoint(seq=0, hash=START, at="", key="", signature="")
"""What stands for an anchor that was changed so that it cannot be read. The chain goes on behind its newest line."""


class Trail:
    """Appends to the chain, reads it, proves it. Nothing here changes a line.

    key   that signs checkpoints; None: one that is made in the store itself
    """

    def __init__(self, documents: Documents, clock: Clock, *, key: bytes | None = None) -> None:
        self._documents = documents
        self._clock = clock
        self._key = key
        self._head: Head | None = None
        self._waiting: list[tuple[Said, asyncio.Future[int]]] = []
        self._writing: asyncio.Task[None] | None = None

    # -- writing -------------------------------------------------------------------------------------------------

    async def append(self, line: Said) -> int:
        """Write a line; it is durable, and has the sequence that is returned, when this returns."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((line, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all())
        # who waits may be cancelled; the line is written all the same, for others wait with it
        return await asyncio.shield(future)

    async def _write_all(self) -> None:
        while batch := self._waiting[:_BLOCK]:
            del self._waiting[: len(batch)]
            try:
                first = await self._write([line for line, _ in batch])
            except BaseException as error:
                self._head = None  # what is there now is not known: look again
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                        future.exception()  # a caller that has gone does not have to hear it
                if not isinstance(error, Exception):
                    raise
                continue
            for place, (_, future) in enumerate(batch):
                if not future.done():
                    future.set_result(first + place)

    async def _write(self, lines: Sequence[Said]) -> int:
        """Write them behind whatever the chain ends with by then; returns the sequence of the first."""
        head = self._head or await self._end()
        pause = 0.001
        while True:
            written, after = chained(head, lines)
            if await self._documents.put(KIND, _id(head.seq + 1), body_of(written), expect=0):
                self._head = after
                return head.seq + 1
            behind = await self._follow(head)
            if behind == head:  # the block is gone that was in our way: somebody tampers, or prunes
                behind = await self._end()
            head = behind
            await self._clock.sleep(self._clock.rng.uniform(0, pause))
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _end(self) -> Head:
        """The end of the chain; a chain that has none is begun."""
        head = await self._last()
        if head.seq == 0:
            await self._begin()
        return await self._follow(head)

    async def _last(self) -> Head:
        newest = await self._documents.list(KIND, limit=1)
        anchor = await self._anchor()
        kept = Head() if anchor is None else _head_of(anchor)
        return max(_end_of(newest[0]) if newest else Head(), kept, key=lambda head: head.seq)

    async def _follow(self, head: Head) -> Head:
        """The end of the chain from there on, block by block: read by id, which needs no index to be fresh."""
        while (block := await self._documents.get(KIND, _id(head.seq + 1))) is not None:
            head = _end_of(block)
        return head

    async def _begin(self) -> None:
        """Write the first line: it has the digest of the lines from before there was a chain."""
        count, last, digest = await self._older(None)
        detail = f"{count} older lines, up to {last or 'none'}, digest {digest}"
        line = said(REDRIVE, BEGAN, Phase.DONE, at=self._now(), detail=detail, about=(last, digest, str(count)))
        written, _ = chained(Head(), [line])
        await self._documents.put(KIND, _id(1), body_of(written), expect=0)

    # -- reading -------------------------------------------------------------------------------------------------

    async def lines(
        self, only: Filter | None = None, *, before: int | None = None, ascending: bool = False
    ) -> AsyncIterator[Line]:
        """The lines that a filter takes, newest first or `ascending`, a page of the store at a time."""
        only = only or Filter()
        after = None if before is None else _id(before)
        while page := await self._documents.list(KIND, limit=_PAGE, after=after, ascending=ascending):
            after = page[-1].id
            for block in page:
                lines = _lines_of(block)
                for written in lines if ascending else reversed(lines):
                    line = _read(written)
                    if line is not None and (before is None or line.seq < before) and only.takes(line):
                        yield line

    async def ended_from(self, seq: int) -> AsyncIterator[int]:
        """With which lines those acts began whose outcome is in the line of that sequence or a later one."""
        found = await self._documents.list(KIND, limit=1, after=_id(seq + 1))  # its block begins with it, or before
        while found:
            for block in found:
                for line in map(_read, _lines_of(block)):
                    if line is not None and line.of is not None and line.seq >= seq:
                        yield line.of
            found = await self._documents.list(KIND, limit=_PAGE, after=found[-1].id, ascending=True)

    async def newest(self, blocks: int) -> list[Line]:
        """The lines of the newest blocks, newest first."""
        page = await self._documents.list(KIND, limit=blocks)
        lines = [_read(written) for block in page for written in reversed(_lines_of(block))]
        return [line for line in lines if line is not None]

    async def older(self) -> AsyncIterator[Document]:
        """The lines from before there was a chain, newest first."""
        after = None
        while page := await self._documents.list(OLDER, limit=_PAGE, after=after):
            after = page[-1].id
            for document in page:
                yield document

    # -- proving -------------------------------------------------------------------------------------------------

    async def verify(
        self, checkpoint: Checkpoint | None = None, *, progress: Callable[[int], None] = lambda lines: None
    ) -> Verdict:
        """Follow the whole chain, and name the first line that is not as it was written."""
        while True:
            anchor = await self._anchor()
            verdict = await self._follow_all(anchor, checkpoint, progress)
            if verdict.broken is None or await self._anchor() == anchor:
                return verdict
            # retention removed the first lines while we were on our way to them: from where it ended, once more

    async def _follow_all(
        self, anchor: Checkpoint | None, checkpoint: Checkpoint | None, progress: Callable[[int], None]
    ) -> Verdict:
        start = Head() if anchor is None else _head_of(anchor)
        if anchor is not None:
            await self._check_anchor(anchor)
        if checkpoint is not None:
            check_signature(checkpoint, await self.key())
        known = [] if checkpoint is None else [_head_of(checkpoint)]
        if checkpoint is not None and checkpoint.seq < start.seq:
            raise UsageError(
                f"this checkpoint is of line {checkpoint.seq:,}, and retention has removed the lines up to "
                f"{start.seq:,}: take a newer one"
            )
        if checkpoint is not None and checkpoint.seq == start.seq and checkpoint.hash != start.hash:
            return Verdict(lines=0, first=start.seq + 1, head=start, broken=Broken(start.seq, "changed: the anchor"))
        proof = Proof(start, known)
        first: Line | None = None
        after = _id(start.seq) if start.seq else None  # what is left from before the anchor is not looked at
        while page := await self._documents.list(KIND, limit=_PAGE, after=after, ascending=True):
            after = page[-1].id
            for block in page:
                if not proof.follow(_number(block.id), _lines_of(block)):
                    break
                first = first or _read(_lines_of(block)[0])
            if proof.broken is not None:
                break
            progress(proof.head.seq - start.seq)
        broken = proof.end()
        older, changed = await self._verify_older(first)
        return Verdict(
            lines=proof.head.seq - start.seq,
            first=start.seq + 1,
            head=proof.head,
            broken=broken,
            checkpoint=None if checkpoint is None or broken is not None else checkpoint.seq,
            older=older,
            older_changed=changed,
        )

    async def checkpoint(self) -> Checkpoint:
        """The end of the chain, signed. Raises UsageError where the chain does not hold: that would sign a forgery."""
        verdict = await self.verify()
        if verdict.broken is not None:
            raise UsageError(f"line {verdict.broken.seq:,} was {verdict.broken.why}: such a chain is not signed")
        return sign(verdict.head, await self.key(), at=self._now())

    async def key(self) -> bytes:
        """What signs: the key of the settings, or one that is made in the store once."""
        if self._key is not None:
            return self._key
        made = {"key": secrets.token_hex(32)}
        await self._documents.put(KEY, KEY, made, expect=0)
        document = await self._documents.get(KEY, KEY)
        try:
            return bytes.fromhex((document.body if document else made)["key"])
        except (KeyError, TypeError, ValueError):
            raise UsageError(
                "the key of the trail in the store was changed, and is none any more: what it signed cannot be proven; "
                "set access.trail_key to a key that is not kept there"
            ) from None

    # -- retention -----------------------------------------------------------------------------------------------

    async def prune(self, before: datetime, *, by: Actor = REDRIVE) -> int:
        """Remove the oldest lines, up to the first that is younger; returns how many. The chain holds: what is removed
        is verified first, its end is signed and kept as the anchor, and a line of the trail says so, and who did it."""
        verdict = await self.verify()
        if verdict.broken is not None:
            raise UsageError(f"line {verdict.broken.seq:,} was {verdict.broken.why}: nothing of it is removed")
        if verdict.older_changed:
            raise UsageError("the lines from before the chain are not what they were when it began: nothing is removed")
        end = await self._older_than(before, verdict.head.seq)
        if end is None:
            return 0
        checkpoint = sign(end, await self.key(), at=self._now())
        detail = f"lines {verdict.first} to {end.seq} are removed, the last has the hash {end.hash}"
        await self.append(said(by, PRUNED, Phase.DONE, at=self._now(), detail=detail))
        await self._keep_anchor(checkpoint)
        await self._drop(end.seq)
        return end.seq - verdict.first + 1 + await self._drop_older(before)

    async def _keep_anchor(self, checkpoint: Checkpoint) -> None:
        """Put it in the place of an older one. An anchor never goes back: another may have removed more meanwhile."""
        while True:
            document = await self._documents.get(ANCHOR, ANCHOR)
            there = None if document is None else await self._anchor()
            if there is not None and there.seq >= checkpoint.seq:
                return
            version = 0 if document is None else document.version
            if await self._documents.put(
                ANCHOR, ANCHOR, msgspec.to_builtins(Anchor(checkpoint=checkpoint)), expect=version
            ):
                return

    async def _older_than(self, before: datetime, last: int) -> Head | None:
        """The end of the last block whose lines, and all before them, are older; the newest block always stays."""
        end, after = None, None
        while page := await self._documents.list(KIND, limit=_PAGE, after=after, ascending=True):
            after = page[-1].id
            for block in page:
                line = _read(_lines_of(block)[-1])
                at = None if line is None else _at(line)
                if line is None or at is None or at >= before or line.seq >= last:
                    return end
                end = _end_of(block)
        return end

    async def _drop(self, upto: int) -> None:
        while page := await self._documents.list(KIND, limit=_PAGE, ascending=True):
            for block in page:
                if _number(block.id) > upto:
                    return
                await self._documents.delete(KIND, block.id)

    async def _drop_older(self, before: datetime) -> int:
        """Remove the lines from before the chain that are older: with its first line went what proved them."""
        ids = [document.id async for document in self.older() if _is_before(document, before)]
        return sum([await self._documents.delete(OLDER, id) for id in ids])

    # -- inside --------------------------------------------------------------------------------------------------

    async def _anchor(self) -> Checkpoint | None:
        document = await self._documents.get(ANCHOR, ANCHOR)
        if document is None:
            return None
        try:
            return msgspec.convert(document.body, Anchor).checkpoint
        except msgspec.ValidationError:
            return _NO_ANCHOR  # what was there is gone: its signature does not hold

    async def _check_anchor(self, anchor: Checkpoint) -> None:
        try:
            check_signature(anchor, await self.key())
        except UsageError as error:
            raise UsageError(f"the anchor that retention left at line {anchor.seq:,} does not hold: {error}") from None

    async def _older(self, upto: str | None) -> tuple[int, str, str]:
        """The lines from before the chain, up to that id: how many, the last, and the digest of all."""
        digest, count, last = hashlib.sha256(), 0, ""
        after = None
        while page := await self._documents.list(OLDER, limit=_PAGE, after=after, ascending=True):
            after = page[-1].id
            for document in page:
                if upto is not None and document.id > upto:  # of a process that knows no chain yet
                    return count, last, digest.hexdigest()
                digest.update(msgspec.json.encode([document.id, document.body], order="sorted"))
                count, last = count + 1, document.id
        return count, last, digest.hexdigest()

    async def _verify_older(self, first: Line | None) -> tuple[int, bool]:
        if first is None or first.action != BEGAN or len(first.about) != 3:
            return 0, False
        last, digest, count = first.about
        found = await self._older(last)
        return found[0], found[2] != digest or str(found[0]) != count

    def _now(self) -> str:
        return self._clock.now().isoformat()


def _at(line: Line) -> datetime | None:
    """When a line says it was written; None if it says nothing that is a time, as only a forged one does."""
    try:
        at = datetime.fromisoformat(line.at)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def _is_before(older: Document, moment: datetime) -> bool:
    """Whether a line from before the chain says a time, and that is before the moment."""
    try:
        at = datetime.fromisoformat(older.body["at"])
    except (KeyError, TypeError, ValueError):
        return False
    return at.tzinfo is not None and at < moment


def _id(seq: int) -> str:
    return f"{seq:015}"


def _number(id: str) -> int:
    return int(id) if id.isdecimal() else 0


def _lines_of(block: Document) -> list[Written]:
    """The lines of a block, at least one: where there are none, one that is none, for the proof to name."""
    try:
        return msgspec.convert(block.body["lines"], list[Written]) or [Written("", "")]
    except (KeyError, msgspec.ValidationError):
        return [Written("", "")]


def _end_of(block: Document) -> Head:
    lines = _lines_of(block)
    return Head(_number(block.id) + len(lines) - 1, lines[-1].hash)


def _head_of(checkpoint: Checkpoint) -> Head:
    return Head(checkpoint.seq, checkpoint.hash)


def _read(written: Written) -> Line | None:
    try:
        return read_line(written.text)
    except msgspec.MsgspecError:
        return None
