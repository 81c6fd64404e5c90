"""What can go wrong with a server, each error saying what to do next.

ServersError
├── InstallError     a fetch or a build failed
├── NotInstalled     something a server needs is absent or damaged
└── ServerFailed     a started server is not there (any more)
"""

WITHOUT_SERVERS = "or leave out the tests that need a server: REDRIVE_SERVERS=none make test"


class ServersError(Exception):
    """The base of every error of this package."""


class InstallError(ServersError):
    """A step of `make servers` failed; the message names the server and the way out."""


class NotInstalled(ServersError):
    """A server cannot be started because its files are absent or damaged."""

    def __init__(self, server: str, lacking: str) -> None:
        super().__init__(f"{server}: {lacking} is missing or damaged; run make servers")


class ServerFailed(ServersError):
    """A server ended, or never came up; the message ends with the tail of its log."""
