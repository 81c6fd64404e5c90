"""A storm that is held, and a deploy that mends a group: queues with the names of file processing, on SQLite instead of
RabbitMQ.

The object storage goes away for minutes, and the storm guard holds `q.extractor` instead of emptying it. `q.thumbnail`
has a bug; the next version does not, and when it runs everywhere its letters go back by themselves.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from msgspec import Struct

from redrive.app import Redrive
from redrive.demo.past import Past
from redrive.demo.people import People
from redrive.demo.stage import TENANTS, Life, Stage, together
from redrive.errors import RedriveError
from redrive.flow.backoff import constant
from redrive.forensics.query import Query
from redrive.model import Message
from redrive.policy import Again, Policy, Storm
from redrive.service import Service

VALIDATOR, THUMBNAIL, EXTRACTOR = "q.validator", "q.thumbnail", "q.extractor"
OLD, BROKEN = "2.3.9", "2.4.1"
DEPLOY, NEXT_DEPLOY = 75.0, 480.0  # seconds until the first deploy, and between two others
ROUND, AWAY = 480.0, 300.0  # seconds of a round, and of it without the object storage
KINDS = ("jpeg", "png", "webp", "tiff")


class Upload(Struct, frozen=True, kw_only=True):
    """A file that somebody has uploaded."""

    file_id: str
    bucket: str
    kind: str
    bytes: int
    exif: dict[str, int] = {}


class Images:
    """Makes thumbnails, in some version."""

    def __init__(self, version: str) -> None:
        self.knows_webp = version != OLD
        self.reads_exif_safely = int(version.rpartition(".")[2]) % 2 == 0

    def thumbnail(self, upload: Upload) -> str:
        if upload.kind == "webp" and not self.knows_webp:
            raise ValueError(f"cannot read the image format {upload.kind!r}")
        return f"{upload.file_id} turned {self.turns(upload)} times"

    def turns(self, upload: Upload) -> int:
        return upload.exif.get("orientation", 1) if self.reads_exif_safely else upload.exif["orientation"]


class Storage:
    """Where files are; sometimes it is not there."""

    def __init__(self) -> None:
        self.is_away = False

    async def extract(self, upload: Upload) -> None:
        if self.is_away:
            raise ConnectionError(
                f"storage.internal:9000 does not answer: cannot read {upload.bucket}/{upload.file_id}"
            )


def validate(upload: Upload) -> None:
    if upload.bucket == "partners":
        raise PermissionError("AccessDenied: the bucket 'partners' may not be read with this key")
    if upload.bytes == 0:
        raise ValueError("the file is empty")


class FilesLife(Life):
    name = "files"
    watch = "q.extractor is held by the storm guard while its storage is away; a deploy mends q.thumbnail"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.storage = Storage()
        self.extractor = stage.app("extractor-1", "1.9.2")
        guard = Storm(share=0.5, over="1m", at_least=12)
        again = Again(20, constant("20s", jitter=0.25))
        policy = Policy(attempts=2, backoff=constant("500ms"), again=again, storm=guard)
        self.extractor.handler(EXTRACTOR, policy=policy)(self.storage.extract)
        self.images = self._version(BROKEN)
        self.release = 1
        self.number = 400

    def _version(self, version: str) -> Redrive:
        app = self.stage.app("images-1", version)
        policy = Policy(attempts=2, backoff=constant("1s"))
        app.handler(THUMBNAIL, policy=policy)(Images(version).thumbnail)
        app.handler(VALIDATOR, policy=policy)(validate)
        return app

    def upload(self, app: Redrive, queue: str, tenant: str, **fields: Any) -> Message:
        self.number += 1
        chance, file = self.stage.random, f"file-{self.number}"
        given = {
            "bucket": "incoming",
            "kind": chance.choice(KINDS),
            "bytes": chance.randint(9_000, 9_000_000),
            **fields,
        }
        id = f"{file}-{self.stage.clock.new_id()[-6:]}"
        headers = {"x-message-type": "FileUploaded", "x-routing-key": f"files.uploaded.{given['kind']}"}
        body = Upload(file_id=file, **given)
        return app.message(queue, body, id=id, tenant=tenant, correlation_id=file, headers=headers)

    async def past(self, past: Past) -> None:
        old = self._version(OLD)
        try:
            await self._images_past(past, old)
        finally:
            await old.aclose()
        self.storage.is_away = True
        for at in [*past.times(38.2, 38, 14), *past.times(14.1, 13.9, 26), *past.times(3.6, 3.5, 19)]:
            after = timedelta(minutes=past.random.uniform(4, 40))
            await past.handle(
                self.extractor, self.upload(self.extractor, EXTRACTOR, self._tenant(past)), at, resolved=after
            )
        self.storage.is_away = False

    async def _images_past(self, past: Past, old: Redrive) -> None:
        new = self.images
        for at in past.times(45, 21, 130):
            await past.handle(
                old,
                self.upload(old, THUMBNAIL, self._tenant(past), kind="webp", exif={"orientation": 1}),
                at,
                version=OLD,
            )
        for at in past.times(6, 0.1, 58, late=1.5):
            tenant = past.random.choice(("hooli", "hooli", "acme"))
            await past.handle(new, self.upload(new, THUMBNAIL, tenant, kind="jpeg", exif={"width": 4032}), at)
        for at in [*past.times(33, 29, 21), *past.times(12, 10, 7)]:
            await past.handle(new, self.upload(new, VALIDATOR, "globex", bucket="partners"), at, version="2.4.0")
        for at in past.times(0.7, 0.05, 7):
            await past.handle(new, self.upload(new, VALIDATOR, self._tenant(past), bytes=0), at)

    def _tenant(self, past: Past) -> str:
        return past.random.choice(TENANTS)

    async def people(self, people: People) -> None:
        bug = await people.group(THUMBNAIL, "orientation")
        await people.assign(bug, "chris", "Photos without EXIF. Hooli's new app strips it.")
        await people.fix(bug, "2.4.2", "IMG-77: no EXIF means upright", auto=True)
        empty = await people.group(VALIDATOR, "the file is empty")
        await people.fix(empty, "2.6.0", "IMG-80: empty files are refused when they are uploaded")
        webp = await people.group(THUMBNAIL, "webp")
        await people.replay(Query(groups=(webp,)), "2.4.0 reads webp", rate=0.7)

    async def live(self) -> None:
        await together(lambda: self.stage.work(self.extractor), self._deploys, self._extract, self._thumbnails)

    async def _extract(self) -> None:
        """Many at once, so that a storm is seen for what it is; then steadily."""
        stage, first = self.stage, 20
        while True:
            self.storage.is_away = stage.age % ROUND < AWAY
            uploads = [self.upload(self.extractor, EXTRACTOR, stage.tenant()) for _ in range(first)]
            await stage.send(self.extractor, *uploads)
            first = 1
            await stage.pause(2.0)

    async def _thumbnails(self) -> None:
        """One photo after the other; of some the EXIF is missing."""
        stage = self.stage
        while True:
            app, exif = self.images, {} if stage.chance(0.12) else {"orientation": 1}
            kind = {"kind": "jpeg", "exif": exif}
            await stage.send(app, self.upload(app, THUMBNAIL, stage.tenant(), **kind))
            if stage.chance(0.3):
                size = 0 if stage.chance(0.05) else 120_000
                await stage.send(app, self.upload(app, VALIDATOR, stage.tenant(), bytes=size))
            await stage.pause(2.5)

    async def _deploys(self) -> None:
        """A version after the other: even ones are well."""
        wait = DEPLOY
        while True:
            over = asyncio.Event()
            working = asyncio.create_task(self.stage.work(self.images, over))
            try:
                await self.stage.clock.sleep(wait)
            finally:
                over.set()
                await working
            wait = NEXT_DEPLOY
            await self._deploy()

    async def _deploy(self) -> None:
        self.release += 1
        version, old = f"2.4.{self.release}", self.images
        self.images = self._version(version)
        await old.aclose()
        self.stage.say(f"files: images-1 was deployed in version {version}")
        if self.release > 2 and self.release % 2:
            await self._promise(f"2.4.{self.release + 1}")

    async def _promise(self, version: str) -> None:
        """Say that the next one mends it, should anything of it be left."""
        people = People(Service(self.images))
        try:
            await people.fix(await people.group(THUMBNAIL, "orientation"), version, "it is back", auto=True)
        except (RedriveError, StopIteration) as error:
            self.stage.say(f"files: nobody said that {version} mends it: {error}")

    async def aclose(self) -> None:
        await self.extractor.aclose()
        await self.images.aclose()
