"""A key that requests have to bring."""

import os
from base64 import b64decode
from hmac import compare_digest
from pathlib import Path

from starlette.datastructures import Headers

VARIABLE = "ABALONE_API_KEY"
SHORTEST = 16  # characters; `openssl rand -hex 16` makes 32
LONGEST = 1000


def read_key(file: Path | None) -> str | None:
    """The key that the server asks for, from a file or the environment, as the command line is for all to see."""
    if file is not None:
        with file.open(encoding="ascii", errors="replace") as opened:
            return _checked(opened.read(LONGEST + 2).strip(), str(file))
    key = os.environ.get(VARIABLE)
    return None if key is None else _checked(key, VARIABLE)


def brings(headers: Headers, key: str) -> bool:
    """Whether a request has the key: as a bearer token, or as the password of any user, which browsers ask for."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            given = b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:
            return False
    elif scheme.lower() != "bearer":
        return False
    return compare_digest(given.strip().encode(), key.encode())  # in the same time, however much of it is right


def _checked(key: str, where: str) -> str:
    if not SHORTEST <= len(key) <= LONGEST or not all("!" <= character <= "~" for character in key):
        raise ValueError(
            f"{where}: an API key has {SHORTEST} to {LONGEST:,} characters of ASCII without spaces; "
            "`openssl rand -hex 16` makes one"
        )
    return key
