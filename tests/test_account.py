"""What a person sees adds up: units, then biases, positions and the rest, and the value."""

import math
import re
from decimal import Decimal
from typing import Any

import pytest
import torch
from rich.console import Console

import relprop
from relprop.explanation import Explanation
from relprop.registry import METHODS
from relprop.render.caption import shown_account, shown_value
from relprop.render.text.html import html
from relprop.render.text.layout import rows
from relprop.render.text.terminal import terminal
from relprop.targets import TokenAt, quantity_of

TEXT = "the acting is terrible but i loved every minute"
FAST: dict[str, dict[str, Any]] = {
    "integrated_gradients": {"steps": 4},
    "smoothgrad": {"samples": 2},
    "shapley": {"max_evals": 60},
}
explainer = relprop.Explainer("sentiment")


def shown(e: Explanation) -> list[Decimal]:
    """The numbers of a row: of every unit and of every chip."""
    ((_, heatmap),) = e.drawings
    (row,) = rows([heatmap])
    return [Decimal(re.findall(r"[+-][\d.]+", cell.title)[0]) for cell in (*row.cells, *row.chips)]


@pytest.mark.parametrize("seed", range(20))
def test_rounded_numbers_sum_to_the_rounded_value(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    scores = (torch.randn(30, generator=draw, dtype=torch.float64) * 10 ** (seed % 7 - 3)).tolist()
    biases = torch.randn((), generator=draw).item()
    value = sum(scores) + biases + (0.0 if seed % 2 else 0.25)
    account = shown_account(scores, (("biases", biases), ("nothing", 0.0)), value)
    numbers = [Decimal(one) for one in (*account.scores, *(share for _, share in account.beside))]
    assert sum(numbers) == Decimal(account.value) == Decimal(shown_value(value))
    unit = Decimal(1).scaleb(Decimal(account.value).as_tuple().exponent)  # type: ignore[arg-type]
    assert all(abs(Decimal(one) - Decimal(score)) < unit for one, score in zip(account.scores, scores, strict=True))
    named = [name for name, _ in account.beside]
    assert named == ["biases"] if seed % 2 else ["biases", "not accounted"]


@pytest.mark.parametrize(("value", "text"), [(2.0, "2.000"), (-0.00012, "-0.000120"), (0.0, "0.000"), (3e7, "30000000"),
                                             (math.nan, "nan")])  # fmt: skip
def test_a_value_has_at_least_three_digits(value: float, text: str) -> None:
    assert shown_value(value) == text


@pytest.mark.parametrize("method", [record.name for record in METHODS if record.signed])
def test_a_single_text_adds_up(method: str) -> None:
    """In numbers exactly, and as shown to the last digit; also in words, without special tokens, and as a frame."""
    e = explainer(TEXT, method=method, **FAST.get(method, {}))
    for one in (e, e.words(), e.without_special(), Explanation.from_json(e.to_json())):
        assert one.accounted + sum(share for _, share in one.account) == pytest.approx(one.value, rel=1e-5)
        assert sum(shown(one)) == Decimal(shown_value(one.value))
        assert one.to_frame().score.sum() == pytest.approx(one.value, rel=1e-5)


@pytest.mark.parametrize("method", [record.name for record in METHODS if not record.signed])
def test_no_sum_is_claimed_without_a_sign(method: str) -> None:
    e = explainer(TEXT, method=method)
    ((_, heatmap),) = e.drawings
    (row,) = rows([heatmap])
    assert e.account == row.chips == ()
    assert "=" not in row.caption.total


def test_the_rest_is_named_by_what_is_known_of_it() -> None:
    """Biases where they were booked; together where rules conserve; else not accounted."""
    assert [name for name, _ in explainer(TEXT, method="lrp_conservative").account][:1] == ["biases"]
    assert "special units" in dict(explainer(TEXT, method="lrp_conservative").without_special().account)
    (listed,) = explainer([TEXT], method="lrp_conservative")
    assert [name for name, _ in listed.account] == ["biases and constants"]
    (full,) = explainer([TEXT], method="lrp_full", rules="attn_lrp")
    assert [name for name, _ in full.account] == ["not accounted"]
    assert [name for name, _ in explainer(TEXT, method="occlusion").account] == ["not accounted"]
    complete = explainer(TEXT, method="integrated_gradients", steps=40)
    assert complete.account[0][0] == "baseline"


def test_every_rendering_has_the_chips() -> None:
    e = explainer(TEXT, method="lrp_conservative", target=("positive", "negative"))
    ((_, heatmap),) = e.drawings
    (row,) = rows([heatmap])
    chips = [chip.text for chip in row.chips]
    assert chips[0].startswith("(biases ")
    console = Console(width=300, no_color=True, color_system=None)
    with console.capture() as printed:
        console.print(terminal([heatmap]))
    assert all(chip in printed.get() for chip in chips)
    page = html([heatmap])
    assert all(chip in page for chip in chips)
    assert row.caption.total in page
    assert "(logit difference)" in page
    assert f"probability {e.probability:.2f}" in page


def test_pictures_and_graphs_add_up() -> None:
    """The class token or virtual node, biases and the rest stand behind the sum of the patches."""
    import numpy as np

    from relprop.render.image.layout import caption

    pets = relprop.Explainer("pets")
    e = pets(np.full((96, 96, 3), 90, dtype=np.uint8), method="lrp_full")
    ((_, drawing),) = e.drawings
    line = caption(drawing).sums
    *parts, value = re.findall(r"[+-]?\d+\.\d+", line)
    assert sum(map(Decimal, parts)) == Decimal(value) == Decimal(shown_value(e.value))
    assert "rows of no input" in line or "class tokens" in line


def test_a_continuation_adds_up() -> None:
    stories = relprop.Explainer("stories")
    story = stories("Once upon a time", generate=3)
    ((_, drawing),) = story.drawings
    from relprop.render.generation.layout import totals

    (row,) = rows([totals(drawing)])
    numbers = [Decimal(re.findall(r"[+-][\d.]+", cell.title)[0]) for cell in (*row.cells, *row.chips)]
    assert sum(numbers) == Decimal(shown_value(story.value))
    assert story.token(1).quantity == "logit"


def test_what_the_value_is() -> None:
    assert quantity_of(1) == quantity_of(None) == quantity_of(TokenAt(-1, 3)) == "logit"
    assert quantity_of((1, 0)) == quantity_of(TokenAt(-1, 3, 4)) == "logit difference"
    assert quantity_of(lambda out: out.logits.norm()) == ""
