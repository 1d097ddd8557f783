"""Text of others on a terminal: nothing in it is a command to the terminal."""

from __future__ import annotations

import unicodedata

from tenantry_cli.printable import printable


def test_no_control_of_any_kind_is_left_but_line_ends_and_tabs() -> None:
    everything = "".join(map(chr, range(0x3000)))
    left = {each for each in printable(everything) if unicodedata.category(each) == "Cc"}
    assert left == {"\n", "\t"}
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert not [
        each for each in printable(everything) if unicodedata.bidirectional(each) in turning
    ]


def test_text_of_every_script_stays_as_it_is() -> None:
    text = (
        "na\u00efve \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u4f60\u597d \U0001f600"
    )
    assert printable(text) == text
