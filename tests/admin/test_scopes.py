"""Every route, as somebody who reaches a part of it: what is out of scope does not exist.

The routes are those of the API itself, so a new one is asked, too: what it tells somebody of `mail` must not name the bank.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest
from litestar import Litestar

from redrive.access.actors import Role, Scope
from redrive.access.tokens import Tokens
from redrive.admin.access import handlers_of
from redrive.alerts.incidents import Incidents
from redrive.alerts.model import Alert, Severity
from redrive.forensics.query import Query
from redrive.forensics.redact import Redactor
from redrive.model import Message, letter_id
from redrive.service import Service
from redrive.telemetry.events import LettersRecorded
from tests.actors import acting
from tests.admin.asking import asking
from tests.admin.conftest import Shop
