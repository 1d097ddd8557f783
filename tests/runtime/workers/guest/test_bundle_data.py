"""Data of a bundle as files, for those who open it beside `__file__`."""

from __future__ import annotations

from pathlib import Path

from tenantry_runtime.workers.guest.bundle import MAX_WRITTEN_BYTES, write_data


def test_data_is_written_where_its_path_says_and_modules_are_not(tmp_path: Path) -> None:
    files = {"entry.py": b"1", "page.html": b"<p>", "chat/words.txt": b"a", "chat/__init__.py": b""}
    write_data(files, str(tmp_path / "worker"))
    written = {
        str(path.relative_to(tmp_path)): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert written == {"worker/page.html": b"<p>", "worker/chat/words.txt": b"a"}


def test_more_than_fits_is_not_begun(tmp_path: Path) -> None:
    write_data({"a.bin": bytes(MAX_WRITTEN_BYTES), "b.txt": b"1"}, str(tmp_path))
    assert not list(tmp_path.iterdir())
