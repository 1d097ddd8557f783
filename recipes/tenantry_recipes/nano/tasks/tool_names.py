"""Names of tools, composed of a verb and a noun: those for judging never occur in training."""

from __future__ import annotations

from dataclasses import dataclass

from tenantry_recipes.nano.splits import Split, split_of

VERBS = tuple(
    """get find check book order send open close start stop add remove move copy save share buy sell rent pack
    paint build repair clean count list read write plan call invite rate update cancel print track""".split()
)
ASKING_VERBS = ("get", "find", "check", "read")
"""Whose tool may also be asked for as "What is the …?"."""

NOUNS = tuple(
    """weather price ticket table room hotel flight train taxi parcel letter report photo song movie book game
    lesson meeting party trip tour garden house office door alarm timer lamp heater engine car bike boat truck
    account badge invoice contract payment coupon recipe menu dinner basket garage driver doctor teacher team
    project task note page folder file device printer camera sensor robot server map route bridge""".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolName:
    """What a tool does, to what."""

    verb: str
    noun: str

    @property
    def text(self) -> str:
        return f"{self.verb}_{self.noun}"

    @property
    def key(self) -> str:
        return f"tool {self.text}"


_ALL = tuple(ToolName(verb=verb, noun=noun) for verb in VERBS for noun in NOUNS)

TOOL_NAMES: dict[Split, tuple[ToolName, ...]] = {
    side: tuple(name for name in _ALL if split_of(name.key) is side) for side in Split
}
"""Every name is on one side."""
