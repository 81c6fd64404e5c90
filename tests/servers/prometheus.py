"""Prometheus and Alertmanager from Debian, each with a config of the test's choice."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.servers import web
from tests.servers.base import Server
from tests.servers.needs import Needs

SCRAPES_NOTHING = "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
TELLS_NOBODY = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"


class Monitor(Server):
    """A server that is driven by one config file; `files` are laid beside it, under the names it uses."""

    default_config: ClassVar[str]

    def __init__(
        self,
        config: str | None = None,
        files: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        super().__init__(directory)
        self.config = self.directory / f"{self.name}.yml"
        self.config.write_text(self.default_config if config is None else config)
        for name, text in (files or {}).items():
            (self.directory / name).write_text(text)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"url": self.url}

    def is_ready(self) -> bool:
        return bool(web.call("GET", f"{self.url}/-/ready"))

    def reload(self) -> None:
        """Reads the config file again, as the test has changed it."""
        web.call("POST", f"{self.url}/-/reload")


class Prometheus(Monitor):
    """The tool beside it is `promtool`."""

    name = "prometheus"
    needs = Needs(packages=("prometheus",))
    default_config = SCRAPES_NOTHING

    def command(self) -> Sequence[str | Path]:
        return [
            "prometheus",
            f"--config.file={self.config}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address={self.address}",
            "--web.enable-lifecycle",
            "--log.level=warn",
        ]


class Alertmanager(Monitor):
    """Alone, without a cluster. The tool beside it is `amtool`."""

    name = "alertmanager"
    needs = Needs(packages=("prometheus-alertmanager",))
    default_config = TELLS_NOBODY

    def command(self) -> Sequence[str | Path]:
        return [
            "prometheus-alertmanager",
            f"--config.file={self.config}",
            f"--storage.path={self.directory / 'data'}",
            f"--web.listen-address={self.address}",
            "--cluster.listen-address=",
        ]
