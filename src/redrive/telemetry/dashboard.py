"""The dashboard for Grafana, as the JSON that its import takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from redrive.telemetry.panels import Panel, Row

Json: TypeAlias = dict[str, Any]
_WIDTH = 24
_HEIGHTS = {"timeseries": 8, "stat": 4}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UID = "redrive"


def dashboard(rows: Iterable[Row], title: str = "Redrive") -> Json:
    """The rows as a dashboard; which Prometheus it asks is chosen at its top, and which sources."""
    return {
        "uid": UID,
        "title": title,
        "tags": ["redrive"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource(), _sources()]},
        "panels": list(_placed(rows)),
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1}


def _sources() -> Json:
    query = "label_values(redrive_messages_total, source)"
    return {
        "name": "source",
        "label": "Source",
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "sources"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _placed(rows: Iterable[Row]) -> Iterator[Json]:
    """The panels from left to right and from top to bottom, each row under its heading."""
    number, top = 0, 0
    for row in rows:
        number, left, height = number + 1, 0, 0
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "panels": []} | _at(
            0, top, _WIDTH, 1
        )
        top += 1
        for panel in row.panels:
            if left + panel.width > _WIDTH:
                top, left, height = top + height, 0, 0
            number, size = number + 1, _HEIGHTS[panel.kind]
            yield _panel(number, panel) | _at(left, top, panel.width, size)
            left, height = left + panel.width, max(height, size)
        top += height


def _at(left: int, top: int, width: int, height: int) -> Json:
    return {"gridPos": {"x": left, "y": top, "w": width, "h": height}}


def _panel(number: int, panel: Panel) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": query.expr, "legendFormat": query.legend}
            for place, query in enumerate(panel.queries)
        ],
    }
