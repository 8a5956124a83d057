"""`relprop explain` for language models: what a user types, reads and gets wrong."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from language_models import explainer_of
from relprop.cli import main
from relprop.explainer import Explainer
from relprop.explanation import Explanation
from tokenizers_for_tests import saved, tiny

PROMPT = "the movie is"


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def folders(tmp_path_factory: Any) -> dict[str, str]:
    made = {name: tiny(name) for name in ("lm", "bert", "qa")}
    t5 = explainer_of("T5ForConditionalGeneration")
    made["t5"] = (t5.model, t5.tokenizer)
    return {name: str(saved(tmp_path_factory.mktemp(name), *pair)) for name, pair in made.items()}


@pytest.fixture
def relprop(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs the entry point in this process."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("warnings.showwarning", __import__("warnings").showwarning)  # `main` sets its own

    def run(*arguments: object, stdin: bytes = b"") -> Run:
        monkeypatch.setattr(sys, "argv", ["relprop", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Run(int(ended.value.code or 0), *capfd.readouterr())

    return run


def test_generate(relprop: Any, folders: dict[str, str], tmp_path: Any) -> None:
    """The text, a line for each token, and the files: the same numbers as the library gives."""
    files = [tmp_path / name for name in ("a.html", "a.png", "a.json")]
    options = [part for pair in zip(("--html", "--png", "--json"), files, strict=True) for part in pair]
    run = relprop("explain", "--lm", folders["lm"], PROMPT, "--generate", 4, *options)
    found = Explainer(*tiny("lm"))(PROMPT, generate=4)
    assert run.code == 0
    assert run.err.split() == [word for file in files for word in ("wrote", str(file))]
    assert "sum of 4 generated tokens" in run.out
    assert f"{found.steps[2].value:+.3f}" in run.out
    loaded = Explanation.from_json(files[2].read_text())
    assert loaded.continuation == found.continuation
    assert loaded.matrix == pytest.approx(found.matrix, abs=1e-5)
    assert "<!DOCTYPE html>" in files[0].read_text()


def test_next_token(relprop: Any, folders: dict[str, str]) -> None:
    """Without more: the next token, as one explanation; also of an encoder-decoder."""
    run = relprop("explain", "--lm", folders["lm"], PROMPT, "--json", "-")
    assert Explanation.from_json(run.out).target == Explainer(*tiny("lm"))(PROMPT).target
    run = relprop("explain", "--lm", folders["t5"], "w30 w31", "--json", "-")
    parts = Explanation.from_json(run.out).parts
    assert [[unit.text for unit in part.units] for part in parts] == [["w30", "w31", "</s>"], ["<pad>"]]


def test_given_words_against_others(relprop: Any, folders: dict[str, str]) -> None:
    asked = ("--continuation", " good", "--against", " bad", "--words", "--json", "-")
    run = relprop("explain", "--lm", folders["lm"], PROMPT, *asked)
    found = Explanation.from_json(run.out)
    assert (found.steps[0].target, found.part.merged) == ("' good' - ' bad'", True)
    run = relprop("explain", "--lm", folders["lm"], PROMPT, "--generate", 1, "--against", "runner-up", "--json", "-")
    one = Explanation.from_json(run.out).steps[0]
    assert one.target.endswith(f" - {one.runner_up}")


def test_every_line_of_a_pipe(relprop: Any, folders: dict[str, str]) -> None:
    run = relprop("explain", "--lm", folders["lm"], "--generate", 1, "--json", "-", stdin=b"good\nthe bad movie\n")
    assert [Explanation.from_json(line).prompt for line in run.out.splitlines()] == ["good", "the bad movie"]


def test_questions(relprop: Any, folders: dict[str, str], tmp_path: Any) -> None:
    """The context may be an option, the text itself, or a file."""
    question, context = "is it good?", "the movie was good and witty"
    (tmp_path / "context.txt").write_text(context)
    places = (["--context", context], [context], ["--file", tmp_path / "context.txt"])
    outputs = {
        relprop("explain", "--model", folders["qa"], "--question", question, "--json", "-", *p).out for p in places
    }
    assert len(outputs) == 1
    found = Explanation.from_json(outputs.pop())
    own = Explainer(*tiny("qa"))(question=question, context=context)
    assert (found.text, found.target) == (own.text, own.target)
    assert found.scores == pytest.approx(own.scores, abs=1e-5)


def test_an_answer_may_hold_a_comma(relprop: Any, folders: dict[str, str]) -> None:
    """A comma parts two answers, unless the context has it."""
    asked = ("explain", "--model", folders["qa"], "--question", "is it good?", "--json", "-", "--context")
    context = "the movie was good, and witty"
    one, two = (relprop(*asked, context, "--target", target).out for target in ("good, and", "good,witty"))
    assert Explanation.from_json(one).target == "'good, and'"
    assert Explanation.from_json(two).target == "'good' - 'witty'"


def test_ledger(relprop: Any, folders: dict[str, str]) -> None:
    run = relprop("explain", "--lm", folders["lm"], PROMPT, "--generate", 2, "--ledger")
    assert run.out.count("inputs (sum of the scores)") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--generate", 2, PROMPT],
            '--generate needs a language model: relprop explain --lm MODEL "prompt" --generate',
        ),
        (["--lm", "LM", "--model", "LM", PROMPT], "give either --lm or --model, not both"),
        (["--lm", "LM", "--generate", 0, PROMPT], "generate is a number of tokens from 1 on"),
        (["--lm", "LM", "--generate", 99, PROMPT], "there is room for"),
        (["--lm", "BERT", "--generate", 2, PROMPT], "the model writes no text"),
        (["--lm", "LM", "--generate", 2, "--target", "3", PROMPT], "leave out target"),
        (["--lm", "LM", "--generate", 2, "--compare", "lrp,gradient", "--png", "a.png", PROMPT], "one file holds one"),
        (["--lm", "LM", "--generate", 2, ""], "the text is empty"),
        (["--question", "who?", "--context", "me"], "a --model that answers questions"),
        (["--model", "BERT", "--context", "me"], "a context needs its --question"),
        (
            ["--model", "BERT", "--question", "who?", "--context", "me"],
            "--question is for models that answer questions",
        ),
        (["--model", "BERT", "--question", "who?"], "a question needs one context"),
        (["--model", "BERT", "--question", "who?", "--file", "none.txt"], 'cannot read "none.txt": No such file'),
        (["--model", "BERT", "--question", "who?", "--context", "me", "you"], "a question needs one context"),
    ],
    ids=str,
)
def test_mistakes(
    relprop: Any, folders: dict[str, str], tmp_path: Any, monkeypatch: Any, arguments: list[Any], message: str
) -> None:
    """One sentence, and exit code 1."""
    monkeypatch.chdir(tmp_path)
    names = {"LM": folders["lm"], "BERT": folders["bert"]}
    run = relprop("explain", *(names.get(one, one) for one in arguments))
    assert run.code == 1
    assert message in run.err
    assert len(run.err.splitlines()) == 1
