"""TLS whose certificate is renewed while the server runs: what is in the files now is what the next client sees."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from redrive.errors import ConfigError

log = logging.getLogger("redrive")
_LOOK = timedelta(seconds=1)
_EXPIRED = "it has expired, or is not valid yet"
_DATES = (9, 10)  # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED


class Tls:
    """A certificate and its key, as PEM files. A new pair that is broken is not taken, and the old one stays."""

    def __init__(self, cert: Path, key: Path) -> None:
        self.cert, self.key = cert, key
        self._seen = self._stamp()
        try:
            self._now = self._read()
        except (OSError, ValueError) as error:
            raise ConfigError(f"TLS cannot begin with {cert} and {key}: {_why(error)}") from error
        if _has_expired(self._now, cert):
            log.error("the certificate in %s has expired, or is not valid yet: clients will refuse it; renew it", cert)
        self.context = self._read()
        self.context.sni_callback = self._take  # of every handshake, whether a name was given or not

    def _take(self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._now

    async def watch(self) -> None:
        """Look at the files, until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK.total_seconds())
            stamp = self._stamp()
            if stamp != self._seen:
                await asyncio.sleep(_LOOK.total_seconds() / 4)  # the other file of the pair may come just now
                self.renew()

    def renew(self) -> bool:
        """Take what the files have now; whether it could be taken."""
        self._seen = self._stamp()
        try:
            found = self._read()
            if _has_expired(found, self.cert):
                raise ValueError(_EXPIRED)
            self._now = found
        except (OSError, ValueError) as error:
            log.error("the certificate in %s is not taken, and the old one stays: %s", self.cert, _why(error))
            return False
        log.info("the certificate in %s is taken", self.cert)
        return True

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.cert, self.key, password="")  # a key with one is refused, not asked for
        return context

    def _stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_stamp_of, (self.cert, self.key)))


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _has_expired(context: ssl.SSLContext, cert: Path) -> bool:
    """Whether a client would refuse the certificate for its dates: one that trusts it shakes hands in memory."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        trusting.load_verify_locations(cert)
        client, server = trusting.wrap_bio(back, there), context.wrap_bio(there, back, server_side=True)
        for each in (client, server, client):
            with suppress(ssl.SSLWantReadError):
                each.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return error.verify_code in _DATES
    except (OSError, ValueError):
        return False  # another matter, which clients will say better
    return False


def _why(error: Exception) -> str:
    match error:
        case ValueError(args=[said]) if said == _EXPIRED:
            return _EXPIRED
        case FileNotFoundError():
            return "one of the two files is not there"
        case PermissionError():
            return "this user may not read them"
        case ssl.SSLError(reason="KEY_VALUES_MISMATCH"):
            return "the key is that of another certificate"
    return f"they are not a certificate and its key in PEM form, without a password ({error})"
