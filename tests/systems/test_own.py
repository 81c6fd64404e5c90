"""A system of somebody else's is a peer of ours: everything it brings works, found by its entry point alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from redrive.systems.discover import GROUP, sections, systems
from redrive.systems.points import entry_points

SYSTEM = """
from redrive.systems.base import Format, System

system = System(
    name="parcels",
    about="Parcels on their way",
    settings="parcels_inside:ParcelSettings",
    command="parcels_inside:command",
    switch="depot",
    routes="parcels_inside:router",
    checks="parcels_inside:checks",
    metrics="parcels_inside:add_metrics",
    rules="parcels_inside:parcels_rules.yml",
    panels="parcels_inside:ROW",
    prepare="parcels_inside:prepare",
    formats=(
        Format(
            name="parcels", about="lost parcels", reader="parcels_inside:Reader", schemes=("parcels",), topic="lost"
        ),
    ),
    transports={"parcels": "parcels_inside:open_transport"},
    stores={"parcels+sqlite": "parcels_inside:open_store"},
    bodies={"default": "parcels_inside:read_body"},
)
"""

INSIDE = '''
import os
from datetime import timedelta
from typing import Annotated

import click
from msgspec import Struct
from msgspec.structs import replace

from redrive.access.actors import Role
from redrive.cli.lazy import common
from redrive.cli.session import loaded
from redrive.collect.foreign import failure_of, letter_of
from redrive.config.settings import About
from redrive.doctor.findings import fine
from redrive.forensics.decoded import Decoded
from redrive.stores.sqlite import open_store as open_sqlite
from redrive.transports.base import Depth
from redrive.telemetry.panels import Row, graph
from redrive.transports.sqlite import SqliteTransport

ROW = Row("Parcels", (graph("Lost", ("max(parcels_lost)", "parcels")),))


class ParcelSettings(Struct, frozen=True, kw_only=True):
    depot: Annotated[str | None, About("Where parcels lie", least=1)] = None
    wait: Annotated[timedelta, About("How long a parcel waits")] = timedelta(days=1)


@click.command()
@common
def command():
    """Say where parcels lie."""
    own = loaded().settings.of(ParcelSettings)
    click.echo(f"parcels at {own.depot} wait {own.wait}")


async def checks(app):
    return [fine("parcels.depot", f"{app.settings.of(ParcelSettings).depot} is open")]


def prepare(settings):
    return replace(settings, transports={**settings.transports, "parcels": "parcels://here/"})


def add_metrics(app, metrics):
    from prometheus_client import Gauge

    Gauge("parcels_lost", "Parcels that nobody has", registry=metrics.registry).set(3)


class Reader:
    vouched = ("parcels",)

    def __init__(self, topic, *, transport, source):
        self.transport, self.source = transport, source or "parcels"

    def __call__(self, delivery, now):
        failure = failure_of("parcels.Lost", delivery.message.body.decode(), now)
        return letter_of(replace(delivery.message, source=self.source), failure, transport=self.transport, now=now)


class Parcels(SqliteTransport):
    async def depths(self):
        return {"lost": Depth(0, 0, 0), **await super().depths()}  # there, though nothing may lie in it


def read_body(letter):
    if letter.message.body == b"a torn one":
        raise RuntimeError("it is torn")
    return Decoded(format="Words", schema="parcels", value={"label": letter.message.body, "api_key": b"hunter2"})


def open_transport(url, *, clock, lease):
    return Parcels(f"sqlite:///{os.environ['PARCELS']}/queue.db", clock=clock, lease=lease)


def open_store(url):
    return open_sqlite(url.removeprefix("parcels+"))


def __getattr__(name):
    if name == "router":  # only where the server is
        from litestar import Router, get

        @get("/lost", role=Role.VIEWER)
        async def lost() -> int:
            return 3

        return Router("/parcels", route_handlers=[lost], tags=["parcels"])
    raise AttributeError(name)
'''


RULES = """# of parcels
groups:
- name: parcels
  rules:
  - {alert: ParcelsLost, expr: max(parcels_lost) > 0}
"""


class Place:
    """A directory to work in, and one that packages are installed in."""

    def __init__(self, place: Path) -> None:
        self.work, self.site = place / "work", place / "site"
        self.work.mkdir()
        self.site.mkdir()

    def install(self, name: str, target: str, **modules: str) -> None:
        info = self.site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[console_scripts]\nx = y:z\n\n[{GROUP}]\n{name} = {target}\n")
        for module, text in modules.items():
            (self.site / f"{module}.py").write_text(text)

    @property
    def environ(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
        return {**plain, "PYTHONPATH": str(self.site), "PARCELS": str(self.work)}

    def redrive(self, *words: str, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "redrive", *words],
            cwd=self.work,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def settings(self, **environ: str) -> dict[str, Any]:
        found = json.loads(self.redrive("config", "--json", code=0, **environ).stdout)
        return {line["path"]: (line["value"], line["source"]) for line in found["settings"]}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.install("parcels", "parcels_system:system", parcels_system=SYSTEM, parcels_inside=INSIDE)
    (made.site / "parcels_rules.yml").write_text(RULES)
    return made


def test_its_settings_are_read_from_the_file_and_the_environment(place: Place) -> None:
    assert place.settings()["parcels.wait"] == ("1d", "default")
    (place.work / "redrive.toml").write_text('[parcels]\ndepot = "yard"\nwait = "2h"\n')
    assert place.settings()["parcels.depot"] == ("yard", "redrive.toml")
    assert place.settings(REDRIVE_PARCELS_WAIT="3h")["parcels.wait"] == ("3h", "environment")


def test_a_typo_in_them_is_told_as_in_ours(place: Place) -> None:
    (place.work / "redrive.toml").write_text('[parcels]\nwiat = "2h"\n')
    assert "did you mean 'parcels.wait'?" in place.redrive("config", code=2).stderr
    (place.work / "redrive.toml").write_text('[parcels]\nwait = "long"\n')
    assert "it takes a duration such as" in place.redrive("config", code=2).stderr
    (place.work / "redrive.toml").unlink()
    assert "REDRIVE_PARCELS_WAIT" in place.redrive("config", code=2, REDRIVE_PARCELS_WAITS="1h").stderr


def test_its_rules_and_panels_are_printed_where_it_is_configured(place: Place) -> None:
    assert "ParcelsLost" not in place.redrive("alert-rules").stdout
    rules = place.redrive("alert-rules", REDRIVE_PARCELS_DEPOT="yard").stdout
    assert "# of parcels" in rules
    assert "  - name: parcels\n    rules:\n    - {alert: ParcelsLost" in rules
    panels = json.loads(place.redrive("dashboard", REDRIVE_PARCELS_DEPOT="yard").stdout)["panels"]
    assert [panel["title"] for panel in panels[-2:]] == ["Parcels", "Lost"]
    (place.site / "parcels_inside.py").write_text("ROW = 'a text'")
    refused = place.redrive("dashboard", "--system", "parcels", code=2)
    assert "it is a str, not a redrive.telemetry.panels.Row" in refused.stderr
    (place.site / "parcels_rules.yml").unlink()
    refused = place.redrive("alert-rules", "--system", "parcels", code=2)
    assert "the rules parcels_inside:parcels_rules.yml cannot be read" in refused.stderr


def test_its_command_is_in_the_help_and_runs(place: Place) -> None:
    assert re.search(r"  parcels +Parcels on their way", place.redrive("--help").stdout)
    assert "did you mean 'parcels'?" in place.redrive("parcel", code=2).stderr
    assert place.redrive("parcels", REDRIVE_PARCELS_DEPOT="yard").stdout == "parcels at yard wait 1 day, 0:00:00\n"


def test_the_doctor_runs_its_checks_while_it_is_in_use(place: Place) -> None:
    assert "is open" not in place.redrive("doctor", "--store", "memory://").stdout
    assert "yard is open" in place.redrive("doctor", "--store", "memory://", REDRIVE_PARCELS_DEPOT="yard").stdout


def test_its_store_its_transport_and_its_reader(place: Place) -> None:
    store = f"parcels+sqlite:///{place.work}/letters.db"
    place.redrive("send", "lost", "a blue one", REDRIVE_TRANSPORTS_DEFAULT="parcels://here/")
    collected = place.redrive("--store", store, "collect", "parcels://here/lost", "--json").stdout
    assert json.loads(collected) == {"collected": 1, "allowed": 0, "not_allowed": {}}
    (letter,) = json.loads(place.redrive("--store", store, "letters", "--json").stdout)["letters"]
    assert (letter["source"], letter["error_type"]) == ("parcels", "parcels.Lost")
    assert "parcels, lost parcels" in " ".join(place.redrive("collect", "--help").stdout.split())


def test_how_it_reads_bodies(place: Place) -> None:
    place.redrive("send", "lost", "a blue one", REDRIVE_TRANSPORTS_DEFAULT="parcels://here/")
    place.redrive("send", "lost", "a torn one", REDRIVE_TRANSPORTS_DEFAULT="parcels://here/")
    place.redrive("collect", "parcels://here/lost")
    blue, torn = sorted(
        json.loads(place.redrive("letters", "--json").stdout)["letters"], key=lambda one: one["error_message"]
    )
    shown = json.loads(place.redrive("show", blue["id"], "--json").stdout)["decoded"]
    assert (shown["format"], shown["schema"]) == ("Words", "parcels")
    assert json.loads(shown["text"]) == {"label": "a blue one", "api_key": "[redacted]"}
    done = place.redrive("show", torn["id"], "--json")
    assert json.loads(done.stdout)["decoded"] is None
    assert f"the system 'parcels' cannot read the body of letter {torn['id']}: RuntimeError" in done.stderr


def test_the_server_has_its_routes_its_metrics_and_what_it_prepares(place: Place) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "redrive", "up", "--port", "0", "--print-token"],
        cwd=place.work,
        env={**place.environ, "REDRIVE_PARCELS_DEPOT": "yard"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url, _, token = server.stdout.readline().split()[1].partition("#token=")
        assert _get(f"{url}parcels/lost", token) == "3"
        assert "parcels_lost 3.0" in _get(f"{url}metrics", token)
        assert "transports.parcels" in _get(f"{url}readyz", token)
    finally:
        server.terminate()
        server.communicate(timeout=60)


def _get(url: str, token: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


@pytest.mark.parametrize(
    ("target", "module", "said"),
    [
        ("torn_system:system", "import no_such_library\n", "No module named 'no_such_library'"),
        ("torn_system:system", "raise RuntimeError('torn')\n", "RuntimeError: torn"),
        ("torn_system:system", "", "has no attribute 'system'"),
        ("torn_system:system", "system = 7\n", "it is a int, not a redrive.systems.base.System"),
        ("torn_system:system", "from redrive.systems.base import System\nsystem = System(name='x')\n", "called 'torn'"),
    ],
)
def test_a_broken_one_is_named_and_takes_nothing_down(place: Place, target: str, module: str, said: str) -> None:
    place.install("torn", target, torn_system=module)
    shown = place.redrive("--help")
    (line,) = shown.stderr.splitlines()
    assert "the system 'torn' cannot be used" in line
    assert said in line
    assert "parcels" in shown.stdout
    assert place.redrive("send", "orders", "x").stderr.count("the system 'torn' cannot be used") == 1
    assert "'torn' cannot be used" in place.redrive("doctor", code=2).stdout.replace("\n", " ")
    (place.work / "redrive.toml").write_text("[torn]\nx = 1\n")
    assert (
        "unknown setting 'torn.x' in redrive.toml: the system 'torn' cannot" in place.redrive("config", code=2).stderr
    )


def test_one_that_is_named_as_a_command_or_a_section_of_ours_changes_nothing_of_it(place: Place) -> None:
    for name in ("letters", "admin"):
        module = f"{name}_system"
        place.install(name, f"{module}:system", **{module: SYSTEM.replace('name="parcels"', f'name="{name}"', 1)})
    shown = place.redrive("--help")
    assert "the system 'letters' cannot be used (a command of Redrive itself has that name)" in shown.stderr
    assert "Dead letters, newest first" in shown.stdout
    found = " ".join(place.redrive("doctor", "--store", "memory://", code=2).stdout.split())
    assert "the system 'admin' cannot be used (a setting of Redrive itself has that name)" in found
    assert place.settings()["admin.port"] == ("8321", "default")


def test_ours_are_found_as_anybodys_are() -> None:
    integrations = ["bullmq", "celery", "dramatiq", "faststream", "rq", "taskiq"]
    assert sorted(systems()) == sorted(["email", "files", "pipeline", "tickets", "workflow", *integrations])
    assert list(sections()) == ["email", "files", "pipeline", "tickets"]


@pytest.mark.parametrize("group", [GROUP, "console_scripts", "pytest11", "no.such.group"])
def test_entry_points_are_those_that_the_library_finds(group: str) -> None:
    assert set(entry_points(group)) == {(point.name, point.value) for point in metadata.entry_points(group=group)}
