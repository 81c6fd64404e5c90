"""Chromium from Debian, driven by Playwright: `playwright.chromium.launch(**browser.launch_options)`."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypedDict

from tests.servers.needs import Needs


class LaunchOptions(TypedDict):
    """What Playwright's `launch` takes."""

    executable_path: str
    args: list[str]


@dataclass(frozen=True)
class Chromium:
    """Works as root, without a screen, a GPU, a large /dev/shm or a network."""

    name: ClassVar[str] = "chromium"
    needs: ClassVar[Needs] = Needs(packages=("chromium",))
    executable: Path = Path("/usr/bin/chromium")
    args: tuple[str, ...] = (
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
    )

    @property
    def launch_options(self) -> LaunchOptions:
        return {"executable_path": str(self.executable), "args": list(self.args)}
