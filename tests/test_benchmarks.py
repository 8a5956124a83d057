"""The cost benchmark measures what it says, on a small real slice; the bounds themselves are in the slow test."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

import cost
import first_sentence
import methods
import relprop

SMALL = cost.Work("small", 24)


def small(_: cost.Work) -> BertForSequenceClassification:
    config = BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=1000
    )
    return BertForSequenceClassification(config).eval()


def test_ratios_compare_like_with_like(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain pass against itself is 1; a method that does the work three times is 3. Time is counted in passes."""
    monkeypatch.setattr(cost, "build", small)
    real, passes = cost.runner, []

    def counted(method: str, model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> cost.Callable[[], None]:
        run = real("plain", model, inputs)
        times = 3 if method == "triple" else 1
        return lambda: passes.extend(cost.void(run()) for _ in range(times))

    def duration(run: cost.Callable[[], None]) -> float:
        before = len(passes)
        run()
        return len(passes) - before

    monkeypatch.setattr(cost, "runner", counted)
    monkeypatch.setattr(cost, "seconds", duration)
    assert cost.time_ratios(SMALL, ("again", "triple"), rounds=4) == {"again": 1, "triple": 3}


def test_the_share_of_the_proof_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The benchmark sees every call below the place where scores are read: time stands still elsewhere."""
    monkeypatch.setattr(methods, "build", small)
    monkeypatch.setattr(methods, "WORK", SMALL)
    monkeypatch.setattr(methods, "seconds", lambda run: run() or 10.0)
    clock = iter(range(1000))
    monkeypatch.setattr(methods.time, "process_time", lambda: float(next(clock)))
    methods.proof_share(2)
    share = float(capsys.readouterr().out.split("lrp_conservative")[1].split()[0])
    assert 0.1 <= share < 5  # a tenth per call


@pytest.mark.slow
@pytest.mark.parametrize("work", cost.WORKS, ids=lambda work: f"{work.name}-{work.tokens}")
def test_lrp_ah_ln_costs_no_more_than_a_gradient(work: cost.Work) -> None:
    """At most 1.05 of a plain forward and backward pass, 0.95 at 512 tokens; and no more memory."""
    ratio = cost.time_ratios(work, ("lrp_ah_ln",), rounds=15)["lrp_ah_ln"]
    assert ratio <= (0.95 if work.tokens == 512 else 1.05)
    assert cost.memory_ratio(work, "lrp_ah_ln") <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("method", methods.BOUNDS)
def test_what_the_map_methods_cost(method: str) -> None:
    """BERT-base, 8 x 128 tokens: within the bound of docs/costs.md."""
    model, inputs = cost.build(methods.WORK).requires_grad_(False), cost.inputs_for(methods.WORK)
    options = methods.options(method)
    run = lambda: cost.void(relprop.attribute(model, inputs, 1, method, **options))  # noqa: E731
    assert cost.paired_ratios(run, lambda: cost.plain(model, inputs), rounds=5) <= methods.BOUNDS[method]


@pytest.mark.slow
def test_a_first_sentence_takes_hardly_more_than_the_imports() -> None:
    """At most 0.5 s of the processor more than importing torch, transformers and the model's classes."""
    found = first_sentence.measure(rounds=3)
    assert first_sentence.more(found, "explained", "imports") <= 0.5
