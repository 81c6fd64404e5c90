"""Debian packages, installed without ever starting the daemons they bring."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.servers.cache import run_step, say
from tests.servers.errors import WITHOUT_SERVERS, InstallError

POLICY = Path("/usr/sbin/policy-rc.d")
ASIDE = POLICY.with_name("policy-rc.d.before-redrive")
NO_DAEMONS = "#!/bin/sh\n# put here by redrive's tests/servers while packages install\nexit 101\n"
APT = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600")


def missing(packages: Sequence[str]) -> list[str]:
    """Those of the packages that are not fully installed."""
    if not packages:
        return []
    dpkg = shutil.which("dpkg-query")
    if dpkg is None:
        raise InstallError(f"servers: {', '.join(packages)} come from Debian 12, which this is not; {WITHOUT_SERVERS}")
    query = [dpkg, "-W", "-f", "${Package} ${db:Status-Status}\\n", *packages]
    lines = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    return [package for package in packages if f"{package} installed" not in lines]


def install(server: str, packages: Sequence[str]) -> None:
    """Installs the packages that are missing; does not call apt-get at all when none is."""
    lacking = missing(packages)
    if not lacking:
        return
    command = (*APT, "install", "--no-install-recommends", *lacking)
    if os.geteuid() != 0:
        raise InstallError(f"{server}: run as root: {' '.join(command)}, {WITHOUT_SERVERS}")
    say(server, f"apt-get install {' '.join(lacking)}")
    try:
        with daemons_held_back():
            run_step(server, (*APT, "update"), may_be_killed=False)
            # killed half way, it would leave a machine whose every later call of apt-get fails
            run_step(server, command, env={"DEBIAN_FRONTEND": "noninteractive"}, may_be_killed=False)
    except InstallError as error:
        raise InstallError(f"{', '.join(lacking)}: Debian does not give them; {WITHOUT_SERVERS}\n{error}") from error
    _keep_from_next_boot(server, lacking)


@contextmanager
def daemons_held_back() -> Iterator[None]:
    """No package starts its daemon meanwhile; afterwards the machine's own policy is back as it was.

    The machine's policy is moved aside, not copied: after a run that was killed, the next one finds it there.
    """
    if POLICY.exists() and POLICY.read_text(errors="replace") != NO_DAEMONS:
        POLICY.rename(ASIDE)
    POLICY.write_text(NO_DAEMONS)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ASIDE.exists():
            ASIDE.replace(POLICY)
        else:
            POLICY.unlink(missing_ok=True)


def _keep_from_next_boot(server: str, packages: Sequence[str]) -> None:
    """Where systemd runs the machine, the packages' own units do not come up with it."""
    if Path("/run/systemd/system").is_dir():
        units = [f"{package}.service" for package in packages]
        present = [unit for unit in units if Path("/lib/systemd/system", unit).exists()]
        if present:
            run_step(server, ("systemctl", "disable", *present))
