from __future__ import annotations

from hypothesis import given, strategies as st

from tenantry_runtime.text import Control, Text
from tenantry_runtime.text.controls import FIRST_LETTER, MARK, Controls

CONTROLS = Controls({"<a>": 7, "<ab>": 8, "[B]": 9, "/no": 10, "/nothink": 11})

# control strings, their pieces, and the escapes' own characters, in any order
user_texts = st.lists(
    st.sampled_from(
        ["<a>", "<ab>", "[B]", "/no", "think", "<", "a", ">", "[", "]", "/", MARK, "x"]
        + [chr(FIRST_LETTER + i) for i in range(5)]
    )
).map("".join)


@given(user_texts)
def test_escaped_text_comes_back_and_holds_no_control_string(text: str) -> None:
    escaped = CONTROLS.escape(text)
    assert not any(name in escaped for name in CONTROLS.ids)
    assert CONTROLS.restore(escaped) == text


@given(st.lists(user_texts))
def test_fields_put_side_by_side_make_no_control_token(fields: list[str]) -> None:
    rendered = "".join(map(CONTROLS.escape, fields))
    whole = "".join(fields)
    assert CONTROLS.split(rendered) == ((Text(whole),) if whole else ())


def test_a_templates_control_strings_are_cut_out_longest_first() -> None:
    rendered = f"/nothinkx{CONTROLS.escape('<a>[B]')}<a>/no"
    assert CONTROLS.split(rendered) == (
        Control(11),
        Text("x<a>[B]"),
        Control(7),
        Control(10),
    )


def test_strings_are_escaped_wherever_they_are_in_a_value() -> None:
    value = {"<a>": ["[B]", {"k": "<ab>"}], "n": 1, "t": True, "z": None}
    assert CONTROLS.escape_deep(value) == {
        CONTROLS.escape("<a>"): [CONTROLS.escape("[B]"), {"k": CONTROLS.escape("<ab>")}],
        "n": 1,
        "t": True,
        "z": None,
    }
