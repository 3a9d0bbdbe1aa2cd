"""What a plan's numbers mean for a user, in sentences: which layout to take, and where the choice does not matter.

Layouts are compared by the bytes of the busiest rank in an optimizer update (in inference: in a lookup step). A saving of
less than 10 % is not worth a map; hidden with distinct ids, or strided, within 5 % of the best is as good. All are said.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skewtool.skew.plan import LayoutPlan

__all__ = ["advise", "human_bytes"]

_WORTH_A_MAP = 0.10
_AS_GOOD = 0.05


def human_bytes(number: int) -> str:
    """1536 as "1.5 KiB": three digits or so, in the largest unit that leaves at least 1."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number >= 1024**power:
            return f"{number / 1024**power:,.1f} {unit}"
    return f"{number} bytes"


def advise(
    layouts: Sequence["LayoutPlan"],
    best: "LayoutPlan | None",
    lookups_per_update: int | None,
    memory_per_shard: int | None,
    pays_from: float,
    ids_whose_copies_pay: int,
) -> tuple[str, ...]:
    """Sentences for `layouts`, of which `best` is the one to take, None if no layout fits in the memory."""
    by_name = {layout.layout: layout for layout in layouts}
    per = "lookup step" if lookups_per_update is None else f"update of {_counted(lookups_per_update, 'lookup')}"
    sentences = [_what_to_take(by_name, best, per, memory_per_shard)]
    if best is not None and best.busiest_bytes_per_update:
        sentences += _about_hidden(layouts, best) + _about_strided(by_name["strided routed"], best)
    if best is not None and by_name["contiguous all-reduce"].busiest_bytes_per_update:
        sentences.append(_about_copies(by_name, lookups_per_update, pays_from, ids_whose_copies_pay))
    return (
        *sentences,
        _about_replicated_ids(by_name, per),
        "The LM head and the softmax never mind the map: they are dense and only need equal rows per shard.",
    )


def _about_replicated_ids(by_name: dict[str, "LayoutPlan"], per: str) -> str:
    simple = by_name["contiguous all-reduce"]
    moved = simple.busiest_bytes_per_update
    if not moved:
        return "With replicated ids the map never matters."
    beyond = "" if simple.fits else ", but needs more memory per shard than allowed"
    return (
        "If ids are replicated anyway, as in tensor parallelism, the map never matters and contiguous with all-reduce is "
        f"fine for you: under any map every rank moves {human_bytes(moved)} per {per} and has the rows of all tokens, where "
        f"the routed and hidden layouts leave it those of its own{beyond}."
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _what_to_take(
    by_name: dict[str, "LayoutPlan"], best: "LayoutPlan | None", per: str, memory_per_shard: int | None
) -> str:
    if best is None:
        least = min(by_name.values(), key=lambda each: each.weight_bytes + each.temporary_bytes)
        return (
            f"No layout fits in {human_bytes(memory_per_shard or 0)} per shard; {least.layout} needs the least, "
            f"{human_bytes(least.weight_bytes + least.temporary_bytes)} for weight and buffers. Take more shards, or fewer "
            "tokens per rank, or allow more memory."
        )
    simple = by_name["contiguous all-reduce"]
    moved, simply = best.busiest_bytes_per_update, simple.busiest_bytes_per_update
    if not simply:
        return "contiguous with all-reduce is fine for you: one shard has all rows, and nothing is sent."
    if simple.fits and moved > (1 - _WORTH_A_MAP) * simply:
        saves = "none that fits moves less" if best is simple else f"{best.layout}, the best, saves {1 - moved / simply:.1%}"
        return f"contiguous with all-reduce is fine for you: it moves {human_bytes(simply)} per {per}; {saves}."
    among = "all" if memory_per_shard is None else f"those that fit in {human_bytes(memory_per_shard)} per shard"
    routed = by_name["contiguous routed"].busiest_bytes_per_update
    rival = f"; contiguous routed moves {routed / moved:.2f} times as much" if routed > moved > 0 else ""
    return f"Take {best.layout}: its busiest rank moves {human_bytes(moved)} per {per}, the least of {among}{rival}."


def _as_good(layout: "LayoutPlan", best: "LayoutPlan") -> bool:
    return layout.busiest_bytes_per_update <= (1 + _AS_GOOD) * best.busiest_bytes_per_update


def _about_hidden(layouts: Sequence["LayoutPlan"], best: "LayoutPlan") -> list[str]:
    """Where hidden with distinct ids is best or as good: what it needs, and what to take where that is not given."""
    needs = "the LM head is not tied to this table and no row-wise optimizer needs whole rows"
    moved = best.busiest_bytes_per_update
    if best.layout.startswith("hidden"):
        others = [each for each in layouts if each.fits and not each.layout.startswith("hidden")]
        rival = min(others, key=lambda each: each.busiest_bytes_per_update, default=None)
        if rival is None:
            return [f"{best.layout} is for you only if {needs}."]
        more = rival.busiest_bytes_per_update / moved - 1
        return [f"{best.layout} is for you only if {needs}; otherwise take {rival.layout}, which moves {more:.1%} more."]
    (hidden,) = [each for each in layouts if each.layout == "hidden distinct"]
    more = hidden.busiest_bytes_per_update / moved - 1
    if not (hidden.fits and _as_good(hidden, best)):
        return []
    return [f"hidden with distinct ids is as good ({more:.1%} more bytes), and even without a map: take it if {needs}."]


def _about_strided(strided: "LayoutPlan", best: "LayoutPlan") -> list[str]:
    more = strided.busiest_bytes_per_update / best.busiest_bytes_per_update - 1
    if strided is best or not (strided.fits and _as_good(strided, best)):
        return []
    return [f"strided routed is as good on this text ({more:.1%} more bytes), and id % shards needs no map file."]


def _about_copies(
    by_name: dict[str, "LayoutPlan"], lookups_per_update: int | None, pays_from: float, ids_whose_copies_pay: int
) -> str:
    number, one = _counted(ids_whose_copies_pay, "id"), ids_whose_copies_pay == 1
    if lookups_per_update is None:
        rule = f"Without optimizer updates every copy of an id that occurs saves bytes; {number} {'does' if one else 'do'}."
    else:
        rule = (
            f"With {_counted(lookups_per_update, 'lookup')} per update a copy pays for its gradient if its id is in "
            f"{pays_from:.2%} of the windows or more, as {number} {'is' if one else 'are'}."
        )
    copies, plain = by_name.get("balanced with copies"), by_name["balanced routed"]
    if copies is None:
        why = "no extra rows are allowed, or memory has no room for them" if ids_whose_copies_pay else "none can pay"
        return f"{rule} No copies are planned: {why}."
    saved = 1 - copies.busiest_bytes_per_update / max(plain.busiest_bytes_per_update, 1)
    rows = _counted(copies.extra_rows_per_shard, "extra row")
    verdict = f"pay: they save {saved:.1%}" if saved > 0 else f"do not pay: they cost {-saved:.1%}"
    return f"{rule} Copies in {rows} per shard {verdict} of the busiest rank's bytes beside balanced routed."
