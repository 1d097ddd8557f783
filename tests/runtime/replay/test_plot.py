"""The picture of a replay: well-formed, and each number in it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tenantry_runtime.replay.measures import Measured
from tenantry_runtime.replay.plot import svg
from tenantry_runtime.replay.runs import Run, Setting

SVG = "{http://www.w3.org/2000/svg}"


def a_run(routing: str | None, *, num_cached: int = 25, num_prefill: int | None = 8) -> Run:
    request = Measured(
        number=0,
        num_prompt=100,
        num_cached=num_cached,
        num_output=3,
        sent_s=0.0,
        first_token_s=0.5,
        last_token_s=0.6,
    )
    setting = Setting(routing=routing, num_prefill=num_prefill, num_decode=2, cache_tokens=686_000)
    return Run(setting=setting, requests=(request, request))


def drawn(*runs: Run) -> ElementTree.Element:
    return ElementTree.fromstring(svg(runs, title="a <trace> & more"))


def texts(picture: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in picture.iter(f"{SVG}text")]


def test_it_names_what_it_shows_with_units() -> None:
    words = texts(drawn(a_run("affinity"), a_run("oracle", num_cached=50)))
    assert "a <trace> & more" in words
    for word in ("25.0%", "50.0%", "affinity", "oracle"):
        assert word in words
    assert any("8 prefill members" in word and "686,000 tokens" in word for word in words)
    assert "time to first token (s, logarithmic)" in words
    assert "time per output token (ms, logarithmic)" in words


def test_each_run_has_a_bar_and_its_curves_in_one_color() -> None:
    picture = drawn(a_run("affinity"), a_run("oracle"))
    strokes = [line.get("stroke") for line in picture.iter(f"{SVG}polyline")]
    assert len(strokes) == 4
    assert len(set(strokes)) == 2


def test_each_number_of_members_has_a_row() -> None:
    few = drawn(a_run("affinity", num_prefill=2))
    more = drawn(a_run("affinity", num_prefill=2), a_run("affinity", num_prefill=8))
    assert int(more.get("height", 0)) > int(few.get("height", 0))


def test_what_was_not_measured_says_so() -> None:
    endless = Run(setting=Setting(routing="infinite", num_prefill=8), hits=(100, 40))
    words = texts(drawn(endless))
    assert "40.0%" in words
    assert words.count("not measured") == 2


def test_everything_is_inside_the_picture() -> None:
    picture = drawn(a_run("affinity"), a_run("oracle", num_cached=100))
    width, height = int(picture.get("width", 0)), int(picture.get("height", 0))
    for line in picture.iter(f"{SVG}polyline"):
        for point in (line.get("points") or "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width and 0 <= y <= height
    for text in picture.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x", -1)) <= width
        assert 0 <= float(text.get("y", -1)) <= height


def test_nothing_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="nothing to plot"):
        svg([], title="")
