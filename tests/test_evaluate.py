"""`explainer.evaluate`: methods compared on texts, in two lines."""

import numpy as np
import pytest

from relprop.embedded import EMBEDDED
from relprop.errors import InputError, TargetError
from relprop.explainer import Explainer
from relprop.metrics import METRICS, Tokens, auac

TEXTS = [
    "a gorgeous, witty, seductive movie.", "the acting is terrible", "i loved every minute of it", "dull and lifeless",
    "not a bad film", "an awful mess that wastes its talented cast",
]  # fmt: skip
LABELS = ["positive", "negative", "positive", "negative", "positive", "negative"]


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return Explainer("sentiment")


def test_a_table_in_two_lines(explainer: Explainer) -> None:
    """Better methods do better; the table names the best by each metric's own direction."""
    found = explainer.evaluate(TEXTS, LABELS, methods=["random", "lrp_ah_ln", "lrp_conservative"])
    table = found.table()
    assert list(table) == ["random", "lrp_ah_ln", "lrp_conservative"]
    assert table["lrp_ah_ln"]["auac"] > table["random"]["auac"]
    assert table["lrp_ah_ln"]["au_mse"] < table["random"]["au_mse"]
    for metric in found.metrics:
        values = [row[metric] for row in table.values()]
        best = max(values) if METRICS[metric].better == "higher" else min(values)
        assert table[found.best(metric)][metric] == best
        low, high = found.interval("random", metric)
        assert low <= table["random"][metric] <= high
    text = str(found)
    assert text.count("**") == 2 * len(found.metrics)
    assert text.splitlines()[0].startswith("| method | auac (+) | au_mse (-)")


def test_it_is_the_metric_of_each_text_in_the_order_given(explainer: Explainer) -> None:
    """Batched by length inside; outside, text by text what the metric gives for it alone."""
    found = explainer.evaluate(TEXTS, methods=["lrp_ah_ln"], metrics=["auac"], batch_size=2, replacement="unk")
    for number, text in enumerate(TEXTS):
        inputs, one = explainer.inputs([text]), explainer(text, method="lrp_ah_ln")
        content = inputs["input_ids"].new_tensor([[not unit.special for unit in one.units]])
        tokens = Tokens(inputs, content, explainer.tokenizer.unk_token_id)
        alone = auac(explainer.model, tokens, np.array([one.scores])).scores()
        assert found.curves["lrp_ah_ln"]["auac"].scores()[number] == pytest.approx(alone[0], abs=1e-5)


def test_labels_are_what_is_explained(explainer: Explainer) -> None:
    """Asked about the other class, both the scores and the probability that is read are the other's."""
    right, wrong = (
        explainer.evaluate(TEXTS[:1], [label], methods=["lrp_ah_ln"], metrics=["auac"]) for label in ("positive", 0)
    )
    assert right.curves["lrp_ah_ln"]["auac"].labels.tolist() == [1]
    assert wrong.curves["lrp_ah_ln"]["auac"].labels.tolist() == [0]
    assert right.table()["lrp_ah_ln"]["auac"] > wrong.table()["lrp_ah_ln"]["auac"]


def test_mistakes(explainer: Explainer) -> None:
    with pytest.raises(InputError, match="0 texts, 1 methods"):
        explainer.evaluate([], methods=["random"])
    with pytest.raises(TargetError, match="2 targets for 1 texts"):
        explainer.evaluate(TEXTS[:1], [0, 1], methods=["random"])
    with pytest.raises(TargetError, match="furious"):
        explainer.evaluate(TEXTS[:1], ["furious"], methods=["random"])
    with pytest.raises(InputError, match='has no "blank" token'):
        explainer.evaluate(TEXTS[:1], methods=["random"], replacement="blank")
    picture = EMBEDDED["digits"] / "samples" / "0-digits-7.png"
    with pytest.raises(InputError, match="evaluate compares methods on texts and graphs"):
        Explainer("digits").evaluate([picture], methods=["random"])
