"""A PostgreSQL server of the tests' own, and databases on it.

A pytest plugin (`conftest.py` names it) with these fixtures:

| fixture | is |
|---|---|
| postgresql | the server, one for all tests of a run |
| postgresql_url | the URL of a database there with a store's tables, as they are made |
| empty_postgresql_url | the URL of a database there without any |
| database_url | None, which stands for SQLite, then `postgresql_url`: the test runs once on each |
| store | an open `Store` of `database_url`, and of `tmp_path` where that is None |

A test that uses the server is marked `postgresql`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING

import anyio
import pytest
import pytest_asyncio

if TYPE_CHECKING:
    # a base install lacks what it imports
    from tenantry_runtime.tenancy import Store

DEBIAN = Path("/usr/lib/postgresql")

USER = "tenantry"
"""Owns all databases, and needs no password."""

LOCKED_USER, LOCKED_PASSWORD = "locked", "open-sesame"
"""Needs this password."""

PATIENCE_S = 60

_ACCESS = f"local all {LOCKED_USER} scram-sha-256\nlocal all all trust\n"

_READY = "database system is ready to accept connections"

_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "16MB",
    # whoever pulls the plug loses the tests' databases
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}


@dataclass(slots=True, kw_only=True, eq=False)
class PostgresqlServer:
    """Listens at a Unix socket in a directory of its own, and nowhere else."""

    folder: Path
    binaries: Path
    _process: subprocess.Popen[str] | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def url(self, database: str, *, user: str = USER, password: str = "") -> str:
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@/{database}?host={self.folder}"

    @contextmanager
    def a_database(self) -> Iterator[str]:
        """Make an empty one and yield its URL; it is dropped whoever still uses it."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str, *, database: str = "postgres") -> str:
        """Run one statement, and return its rows as lines."""
        address = ["--host", str(self.folder), "--username", USER, "--dbname", database]
        printing = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]
        ran = subprocess.run(
            [self.binaries / "psql", *address, *printing, "--command", statement],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        place = ["-D", str(self.folder / "data"), "-k", str(self.folder)]
        self._process = subprocess.Popen(
            [*_bound_to_this_process(), str(self.binaries / "postgres"), *place, *settings],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the tests, which then end it
            start_new_session=True,
        )
        assert self._process.stderr is not None
        log, is_decided = list[str](), threading.Event()
        reader = threading.Thread(
            target=_read, args=(self._process.stderr, log, is_decided), daemon=True
        )
        reader.start()
        is_decided.wait(PATIENCE_S)
        if not any(_READY in line for line in log):
            self.stop()
            raise RuntimeError(f"PostgreSQL does not start: {''.join(log)}")

    def stop(self) -> None:
        """End it and all connections; what was committed is there when it starts again."""
        if self._process is None:
            return
        process, self._process = self._process, None
        try:
            for how in (signal.SIGINT, signal.SIGQUIT):
                process.send_signal(how)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE_S)
                    break
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def a_server() -> Iterator[PostgresqlServer]:
    """Start one that ends with the block, and with this process if that is killed."""
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="tenantry-postgresql-"))
    try:
        account = _account()
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
        # clients are of this process's user, and a socket's directory must let them through
        folder.chmod(0o711)
        options = ["--pgdata", str(folder / "data"), "--username", USER, "--auth", "trust"]
        quick = ["--no-sync", "--encoding", "UTF8", "--locale", "C"]
        made = subprocess.run(
            [*_unprivileged(), str(binaries / "initdb"), *options, *quick],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert made.returncode == 0, made.stderr
        (folder / "data" / "pg_hba.conf").write_text(_ACCESS)
        server = PostgresqlServer(folder=folder, binaries=binaries)
        server.start()
        try:
            server.execute(f"CREATE ROLE {LOCKED_USER} LOGIN PASSWORD '{LOCKED_PASSWORD}'")
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    with a_server() as server:
        yield server


@pytest.fixture(scope="session")
def _migrated(postgresql: PostgresqlServer) -> Iterator[_Migrated]:
    with postgresql.a_database() as url:
        yield _Migrated(postgresql, url)


@pytest.fixture
def postgresql_url(_migrated: _Migrated) -> Iterator[str]:
    yield _migrated.url
    _migrated.restore()


@pytest.fixture
def empty_postgresql_url(postgresql: PostgresqlServer) -> Iterator[str]:
    with postgresql.a_database() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def database_url(request: pytest.FixtureRequest) -> str | None:
    if request.param == "sqlite":
        return None
    # asked for here, lest SQLite's tests start the server
    url = request.getfixturevalue("postgresql_url")
    assert isinstance(url, str)
    return url


@pytest_asyncio.fixture
async def store(database_url: str | None, tmp_path: Path) -> AsyncIterator[Store]:
    from tenantry_runtime.tenancy import open_store

    async with open_store(tmp_path, url=database_url) as store:
        yield store


class _Migrated:
    """One database for many tests: to make one for each would take most of their time."""

    def __init__(self, server: PostgresqlServer, url: str) -> None:
        from tenantry_runtime.tenancy import open_store

        async def migrate() -> None:
            # nothing is kept in a directory
            async with open_store(Path(os.devnull), url=url):
                pass

        anyio.run(migrate)
        self.url = url
        self._server = server
        self._name = url.partition("?")[0].rpartition("/")[2]
        self._run("CREATE SCHEMA made; CREATE TABLE made.plans AS TABLE plans")
        tables = self._run(
            "SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables "
            "WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
        )
        self._restoration = (
            f"TRUNCATE {tables}; INSERT INTO plans SELECT * FROM made.plans ORDER BY id"
        )

    def restore(self) -> None:
        """Make all tables as they were, whoever still uses them."""
        self._run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{self._name}' AND pid <> pg_backend_pid()"
        )
        self._run(self._restoration)

    def _run(self, statement: str) -> str:
        return self._server.execute(statement, database=self._name)


def _read(stream: IO[str], log: list[str], is_decided: threading.Event) -> None:
    """Take the server's log, which it would wait for; decided is its start, or that it ended."""
    for line in stream:
        if not is_decided.is_set():
            log.append(line)
        if _READY in line:
            is_decided.set()
    is_decided.set()
    stream.close()


def _binaries() -> Path:
    """Return where the newest server's programs are: Debian does not put them on the path."""
    versions = sorted(DEBIAN.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which("postgres")
    if found is None:
        raise RuntimeError(
            "PostgreSQL's server is not installed: run `apt-get install postgresql`, or leave its "
            "tests out with -m 'not postgresql'"
        )
    return Path(found).parent


def _account() -> pwd.struct_passwd | None:
    """Return whom the server runs as; None for who runs the tests. It refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _unprivileged() -> list[str]:
    account = _account()
    if account is None:
        return []
    return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]


def _bound_to_this_process() -> list[str]:
    # Linux alone has this; elsewhere a server outlives tests that are killed
    bond = ["--pdeathsig=QUIT"] if sys.platform == "linux" else []
    return [*(_unprivileged() or (bond and ["setpriv"])), *bond]
