"""KeySetSource: the keys of an issuer, from a file or an HTTP server, as they are now.

Rule: without keys the server does not start. Later a source that is broken or silent leaves the
last keys in force, and is logged. A file is read again every few seconds. A server is asked again
after `refresh_ms`, and a few seconds after a token named a key that the set does not have, however
many tokens do. Redirects are not followed.
Must not know: tokens, mechanisms.
"""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.tasks import Supervisor
from kledger.security.json_web_token import TokenHeader
from kledger.security.key_set import KEY_SET_BYTES_MAX, KeySet, VerificationKey, parse_key_set

logger = logging.getLogger(__name__)

POLL_MS: Final = 5_000
"""How often a file is read, and how often a server may be asked."""
REQUEST_TIMEOUT_S: Final = 10
HTTP_OK: Final = 200
FetchBytes: TypeAlias = Callable[[str], Awaitable[bytes]]
"""Returns what a URL has. Raises OSError or ValueError."""
_KEYS = NamedUnit("background work", "refreshing the keys of OAUTHBEARER, until its next time")


class KeySetUnavailable(ValueError):
    """There are no keys at the start; the message is for the user."""


class KeySetSource:
    """The keys at one URL."""

    def __init__(
        self,
        url: str,
        *,
        refresh_ms: int,
        clock: Clock,
        supervisor: Supervisor,
        fetch: FetchBytes,
    ) -> None:
        """Prepare; `start` loads the keys.

        Args:
            url: `file:`, `http:` or `https:`.
            refresh_ms: the interval at which a server is asked.
            clock: for the intervals.
            supervisor: of the task that refreshes.
            fetch: reads the URL.
        """
        self._url = url
        self._refresh_ms = POLL_MS if is_file(url) else max(refresh_ms, POLL_MS)
        self._clock = clock
        self._supervisor = supervisor
        self._fetch = fetch
        self._current = KeySet(())
        self._content: bytes | None = None
        self._fetched_ms = 0
        self._misses_key = False
        self._is_broken = False

    async def start(self) -> None:
        """Load the keys, and keep them up to date from now on.

        Raises:
            KeySetUnavailable: they cannot be read, or there is none among them.
        """
        try:
            await self._load()
        except (OSError, ValueError) as error:
            raise KeySetUnavailable(f"{self._url}: {error}") from None
        self._supervisor.spawn(self._refresh(), "keys of OAUTHBEARER")

    def find(self, header: TokenHeader) -> VerificationKey | None:
        """Return the key of a token; None: there is none, and the server is asked soon."""
        key = self._current.find(header)
        if key is None:
            self._misses_key = True
        return key

    async def _refresh(self) -> None:
        while True:
            await self._clock.sleep(POLL_MS)
            is_due = self._clock.monotonic_ms() - self._fetched_ms >= self._refresh_ms
            if not (is_due or self._misses_key or self._is_broken):
                continue
            with self._supervisor.containment.guarding(_KEYS):
                await self._reload()

    async def _reload(self) -> None:
        """Load the keys again; what is broken is logged once, until it works again."""
        try:
            await self._load()
        except (OSError, ValueError) as error:
            if not self._is_broken:
                logger.warning("keys of OAUTHBEARER stay as they were: %s: %s", self._url, error)
            self._is_broken = True
            return
        if self._is_broken:
            logger.info("keys of OAUTHBEARER are read again: %s", self._url)
        self._is_broken = False

    async def _load(self) -> None:
        self._misses_key = False
        self._fetched_ms = self._clock.monotonic_ms()
        content = await self._fetch(self._url)
        if content != self._content:
            self._current, self._content = parse_key_set(content), content


def is_file(url: str) -> bool:
    """Whether a URL names a file."""
    return urlsplit(url).scheme == "file"


def check_url(url: str) -> None:
    """Refuse a URL from which no keys can come.

    Raises:
        ValueError: what was expected.
    """
    parts = urlsplit(url)
    is_server = parts.scheme in ("http", "https") and parts.hostname
    is_local_file = parts.scheme == "file" and parts.path and parts.netloc in ("", "localhost")
    if not (is_server or is_local_file):
        raise ValueError(
            f"expected https://HOST/PATH, http://HOST/PATH or file:///PATH, got {url!r}"
        )


def fetching_with(pool: BlockingRunner) -> FetchBytes:
    """Return what reads URLs; files are read in the pool."""

    async def fetch(url: str) -> bytes:
        if is_file(url):
            return await pool.run(_read_file, Path(unquote(urlsplit(url).path)))
        return await _ask_server(url)

    return fetch


def _read_file(path: Path) -> bytes:
    with path.open("rb") as opened:
        return opened.read(KEY_SET_BYTES_MAX + 1)


async def _ask_server(url: str) -> bytes:
    import aiohttp  # Late: it takes longer to load than the server to start.

    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            if response.status != HTTP_OK:
                raise ValueError(f"expected status {HTTP_OK}, got {response.status}")
            content = bytearray()
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > KEY_SET_BYTES_MAX:
                    raise ValueError(f"expected at most {KEY_SET_BYTES_MAX} bytes")
            return bytes(content)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise OSError(f"{type(error).__name__}: {error}") from None
