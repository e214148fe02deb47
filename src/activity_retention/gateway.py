"""The URL of a Pushgateway, in which credentials may be."""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

# Nothing in here could be a piece of a password that was not percent-encoded.
_HARMLESS = re.compile(r"(\w+://)?[\w.-]*(:\d*)?(/[\w./-]*)?", re.ASCII)


@dataclass(frozen=True)
class Gateway:
    """Where a Pushgateway is, without credentials, and these as `user:password`."""

    address: str
    credentials: str | None = field(default=None, repr=False)


def read_gateway(url: str) -> Gateway:
    """Raises ValueError, without a sentence, for what can't be meant."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        # Its sentence quotes what it takes for a port.
        raise ValueError from None
    if not fine or "@" in parts.path or parts.query or parts.fragment:
        raise ValueError
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    if parts.username is None:
        return Gateway(address)
    return Gateway(address, f"{unquote(parts.username)}:{unquote(parts.password or '')}")


def without_credentials(url: str) -> str:
    """The URL as a person may see it: hidden altogether where a password may be anywhere in it."""
    try:
        gateway = read_gateway(url)
    except ValueError:
        return url if _HARMLESS.fullmatch(url) else "(hidden)"
    if gateway.credentials is None:
        return url
    scheme, _, rest = gateway.address.partition("//")
    return f"{scheme}//(hidden)@{rest}"
