"""How a worker's files become modules, and what it is told when they do not."""

from __future__ import annotations

import pytest

from support.guests import Guests, Heard, a_worker, fetched
from tenantry_runtime.workers.interface import CallRefused, LoadError
from tenantry_runtime.workers.spec import Binding, JsonBinding, SecretBinding, TextBinding

WORKER = """
    from workers import Response, WorkerEntrypoint
    {imports}

    class Default(WorkerEntrypoint):
        async def fetch(self, request):
            return Response({value})
"""


def a_worker_that_says(value: str, imports: str = "") -> str:
    return WORKER.format(value=value, imports=imports)


@pytest.mark.asyncio
async def test_modules_and_packages_beside_the_main_module_are_imported(guests: Guests) -> None:
    files = {
        "names.py": b"FIRST = 'Ada'\n",
        "people/__init__.py": b"from .last import LAST\n",
        "people/last.py": b"LAST = 'Lovelace'\n",
        "plain/deep/inner.py": b"MIDDLE = 'King'\n",
    }
    code = a_worker_that_says(
        "f'{names.FIRST} {MIDDLE} {people.LAST}'",
        "import names, people; from plain.deep.inner import MIDDLE",
    )
    async with a_worker(guests, code, files=files) as isolate:
        assert await fetched(isolate) == b"Ada King Lovelace"


@pytest.mark.asyncio
async def test_vendored_packages_are_imported_and_have_metadata(guests: Guests) -> None:
    files = {
        "python_modules/greet/__init__.py": b"import importlib.metadata as m\nV = m.version('greet-it')\n",
        "python_modules/greet_it-2.5.dist-info/METADATA": b"Metadata-Version: 2.1\nName: greet-it\nVersion: 2.5\n",
    }
    code = a_worker_that_says("greet.V", "import greet")
    async with a_worker(guests, code, files=files) as isolate:
        assert await fetched(isolate) == b"2.5"


@pytest.mark.asyncio
async def test_a_package_reads_its_own_files(guests: Guests) -> None:
    files = {
        "pages/__init__.py": b"",
        "pages/index.html": b"<h1>hi</h1>",
        "pages/parts/foot.html": b"<hr>",
    }
    code = a_worker_that_says(
        "files('pages').joinpath('index.html').read_text()"
        " + (files('pages') / 'parts' / 'foot.html').open().read()"
        " + str(sorted(entry.name for entry in files('pages').iterdir()))"
        " + pkgutil.get_data('pages', 'index.html').decode()",
        "import pkgutil; from importlib.resources import files; import pages",
    )
    async with a_worker(guests, code, files=files) as isolate:
        listing = b"['__init__.py', 'index.html', 'parts']"
        assert await fetched(isolate) == b"<h1>hi</h1><hr>" + listing + b"<h1>hi</h1>"


@pytest.mark.asyncio
async def test_pkgutil_finds_the_modules_of_a_package(guests: Guests) -> None:
    files = {
        "tools/__init__.py": b"",
        "tools/add.py": b"",
        "tools/sub/__init__.py": b"",
        "tools/readme.txt": b"",
    }
    code = a_worker_that_says(
        "str([(m.name, m.ispkg) for m in pkgutil.iter_modules(tools.__path__)])",
        "import pkgutil, tools",
    )
    async with a_worker(guests, code, files=files) as isolate:
        assert await fetched(isolate) == b"[('add', False), ('sub', True)]"


@pytest.mark.asyncio
async def test_workers_is_the_sdk_itself(guests: Guests) -> None:
    code = a_worker_that_says(
        "str(workers is tenantry.workers and workers.asgi is tenantry.workers.asgi)",
        "import tenantry.workers, workers, workers.asgi",
    )
    async with a_worker(guests, code) as isolate:
        assert await fetched(isolate) == b"True"


@pytest.mark.asyncio
async def test_a_module_keeps_its_state_between_requests(guests: Guests) -> None:
    code = """
        import itertools
        from workers import Response, WorkerEntrypoint
        numbers = itertools.count(1)

        class Default(WorkerEntrypoint):
            async def fetch(self, request):
                return Response(str(next(numbers)))
    """
    async with a_worker(guests, code) as isolate:
        assert [await fetched(isolate) for _ in range(3)] == [b"1", b"2", b"3"]


async def refused(guests: Guests, code: str, files: dict[str, bytes] | None = None) -> LoadError:
    with pytest.raises(LoadError) as raised:
        async with a_worker(guests, code, files=files):
            raise AssertionError("it was loaded")
    return raised.value


@pytest.mark.asyncio
async def test_a_syntax_error_is_told_with_its_line(guests: Guests) -> None:
    error = await refused(guests, "x = 1\ny = = 2\n")
    assert (error.name, error.path, error.line) == ("SyntaxError", "entry.py", 2)


@pytest.mark.asyncio
async def test_an_import_that_raises_is_told_from_the_workers_first_line_on(guests: Guests) -> None:
    error = await refused(guests, "import low\n", {"low.py": b"import json\njson.loads('{')\n"})
    assert (error.name, error.path, error.line) == ("JSONDecodeError", "low.py", 2)
    lines = error.trace.splitlines()
    assert lines[:3] == [
        "Traceback (most recent call last):",
        '  File "entry.py", line 1, in <module>',
        "    import low",
    ]
    assert '  File "low.py", line 2, in <module>' in lines
    assert "    json.loads('{')" in lines


@pytest.mark.asyncio
async def test_a_missing_module_is_named(guests: Guests) -> None:
    error = await refused(guests, "import nowhere\n")
    assert (error.name, error.message) == ("ModuleNotFoundError", "No module named 'nowhere'")


@pytest.mark.asyncio
async def test_an_import_that_exits_ends_no_isolate(guests: Guests) -> None:
    error = await refused(guests, "import sys\nsys.exit(3)\n")
    assert (error.name, error.message, error.line) == ("SystemExit", "3", 2)


@pytest.mark.asyncio
async def test_a_module_without_an_entrypoint_is_no_worker(guests: Guests) -> None:
    assert (await refused(guests, "x = 1\n")).name == "TypeError"


@pytest.mark.asyncio
async def test_what_an_import_prints_is_nobodys_line(guests: Guests) -> None:
    outside = Heard()
    code = a_worker_that_says("'x'", "print('importing'); print('half', end='')")
    async with a_worker(guests, code, outside=outside):
        assert outside.texts == ["importing", "half"]


@pytest.mark.asyncio
async def test_variables_and_secrets_are_in_env(guests: Guests) -> None:
    bindings: list[Binding] = [
        TextBinding(name="CITY", text="Lyon"),
        JsonBinding(name="NUMBERS", json=[1, 2]),
        SecretBinding(name="KEY"),
    ]
    values = {"CITY": "Lyon", "NUMBERS": [1, 2], "KEY": "s3cret"}
    code = a_worker_that_says("f'{self.env.CITY} {self.env.NUMBERS} {self.env.KEY}'")
    async with a_worker(guests, code, bindings=bindings, values=values) as isolate:
        assert await fetched(isolate) == b"Lyon [1, 2] s3cret"


@pytest.mark.asyncio
async def test_a_blank_isolate_has_imported_what_a_worker_needs(guests: Guests) -> None:
    code = """
        import sys
        before = set(sys.modules)
        import workers, workers.asgi
        from workers import Response, WorkerEntrypoint

        class Default(WorkerEntrypoint):
            async def fetch(self, request):
                await request.text()
                self.ctx.wait_until(workers.fetch('https://example.com/'))
                return Response(str(sorted(set(sys.modules) - before)))
    """
    async with a_worker(guests, code) as isolate:
        assert await fetched(isolate, heard=Heard(refusing)) == b"['workers', 'workers.asgi']"


async def refusing(*_: object) -> object:
    raise CallRefused("Error", "no network")
