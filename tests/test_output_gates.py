"""Models that end in a probability: what it adds to its value at rest is explained, the rest is a constant."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relprop import attribute
from relprop.errors import ModelError
from relprop.rulebook.output_gates import odds

METHODS = ["lrp_ah_ln", "lrp_conservative", "lrp_carried", "attn_lrp"]
Head = Callable[[Tensor], Tensor]


class Tokens(nn.Module):
    """Rows of numbers through a gated layer and attention, and whatever the head makes of two logits."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.gate, self.out = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 2)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5)
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x) * torch.sigmoid(self.gate(x))
        h = torch.softmax(h @ h.mT, -1) @ h
        return self.head(self.out(h.mean(1)))


X = torch.randn(2, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def explained(head: Head, method: str = "lrp_conservative", **options: Any) -> Any:
    return attribute(Tokens(head).double().eval(), X, 1, method, **options)


@pytest.mark.parametrize("method", METHODS)
def test_a_sigmoid_shares_what_it_adds_to_a_half(method: str) -> None:
    """The scores of the logit, times (p - 1/2) / logit; the ledger closes with 1/2 as a constant."""
    found, logit = explained(torch.sigmoid, method, ledger=True), explained(lambda y: y, method)
    p, z = found.value, logit.value
    torch.testing.assert_close(p, z.sigmoid())
    if method in ("lrp_conservative", "lrp_carried"):
        torch.testing.assert_close(found.scores, logit.scores * ((p - 0.5) / z)[:, None])
        assert all(one.closes(1e-9) for one in found.ledger)
        assert [entry.value for entry in found.ledger[0].entries if entry.op == "opened_gate"] == [pytest.approx(0.5)]
    else:  # there a sigmoid is no gate, and flows back by its gradient
        torch.testing.assert_close(found.scores, logit.scores * (p * (1 - p))[:, None])


@pytest.mark.parametrize("method", METHODS[:3])
def test_a_softmax_of_two_is_a_sigmoid_of_the_difference(method: str) -> None:
    soft = explained(lambda y: y.softmax(-1), method, ledger=True)
    difference = explained(lambda y: y - y[:, [1, 0]], method)
    p, u = soft.value, difference.value
    torch.testing.assert_close(p, u.sigmoid())
    torch.testing.assert_close(soft.scores, difference.scores * ((p - 0.5) / u)[:, None])
    if method == "lrp_conservative":
        assert all(one.closes(1e-9) for one in soft.ledger)


def test_log_odds_of_several_classes() -> None:
    """dR/dx_i against the formula, one class at a time."""
    x = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    for index in range(5):
        (found,) = torch.autograd.grad(odds(torch.softmax, x, 0)[index], x)
        p = x.detach().softmax(0)
        u = (p[index] / (1 - p[index])).log()
        expected = -p / (1 - p[index])
        expected[index] = 1
        torch.testing.assert_close(found, expected * (p[index] - 0.5) / u)


def test_at_rest_nothing_is_lost() -> None:
    """Where the odds are even, the limit of the ratio is taken."""
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(odds(torch.softmax, x, 0)[0], x)
    torch.testing.assert_close(found, torch.tensor([0.25, -0.25], dtype=torch.float64))


ENDS: dict[str, Head] = {
    "scaled": lambda y: 10 * torch.sigmoid(y) + 3,
    "rearranged": lambda y: torch.stack([y.sigmoid()[:, 0]] * 2, 1),
    "exp": lambda y: y.exp(),
    "length": lambda y: y.square().sum(1, keepdim=True).sqrt().repeat(1, 2),
    "softplus": lambda y: nn.functional.softplus(y),
    "half detached": lambda y: y.softmax(-1) * y.softmax(-1).detach(),
}


@pytest.mark.parametrize("name", ENDS)
def test_other_ends(name: str) -> None:
    """Scaled, selected and other gates at the end: the ledger closes."""
    found = explained(ENDS[name], ledger=True)
    assert found.scores.abs().sum() > 0
    assert all(one.closes(1e-9) for one in found.ledger)


def test_inner_gates_stay_closed() -> None:
    """The gate and the attention inside flow back as before: the scores are those of the logit, scaled."""
    whole = explained(lambda y: torch.sigmoid(y) * 2)
    logit = explained(lambda y: y)
    ratio = whole.scores / logit.scores
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))


@pytest.mark.parametrize("head", [lambda y: (y.softmax(-1) + 1e-3).log(), lambda y: 1 / (1 + (-y).exp()),
                                  lambda y: y.detach().softmax(-1)], ids=["log", "reciprocal", "detached"])  # fmt: skip
def test_what_cannot_be_opened_is_refused(head: Head) -> None:
    """One sentence, never a made-up number."""
    with pytest.raises(ModelError, match="does not depend on any explained input"):
        explained(head)


def test_one_by_one() -> None:
    together = explained(torch.sigmoid)
    model = Tokens(torch.sigmoid).double().eval()
    for number in range(2):
        alone = attribute(model, X[number : number + 1], 1, "lrp_conservative")
        torch.testing.assert_close(together.scores[number], alone.scores[0])
