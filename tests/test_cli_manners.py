"""How the command line behaves: short ways in, hints, its own words in errors, and no waiting for a slip of the pen."""

from __future__ import annotations

import ast
import gc
import os
import re
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relprop.cli import app, main
from relprop.cli.outputs import loading_note
from relprop.cli.words import command_words
from relprop.embedded import EMBEDDED, MODELS, check_name
from relprop.errors import ModelError
from relprop.explainer import Explainer
from tokenizers_for_tests import saved, tiny

SOURCE = Path(__file__).parents[1] / "src" / "relprop"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(tmp_path_factory.mktemp("bert"), *tiny("bert")))


@pytest.fixture
def relprop(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs the entry point in this process: exit code, standard output, standard error."""
    monkeypatch.setattr("warnings.showwarning", __import__("warnings").showwarning)  # `main` sets its own

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["relprop", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def commands(group: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command and sub-command of the app."""
    own = getattr(group, "commands", {})
    return [path, *(found for name, one in own.items() for found in commands(one, (*path, name)))]


def every_command() -> list[tuple[str, ...]]:
    from typer.main import get_command

    return commands(get_command(app))


@pytest.mark.parametrize("command", every_command(), ids=" ".join)
def test_h_is_help_everywhere(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*command, "-h"])
    assert shown.exit_code == 0
    assert shown.output == CliRunner().invoke(app, [*command, "--help"]).output
    assert "-h, --help" in shown.output


def test_python_m_relprop() -> None:
    done = subprocess.run([sys.executable, "-m", "relprop", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("relprop ")


def test_models_lists_every_embedded_model(relprop) -> None:
    code, out, err = relprop("models")
    assert (code, err) == (0, "")
    for one in MODELS:
        assert one.name in out
        assert one.example in out
        assert one.folder.is_dir()
        assert one.megabytes > 0.1
    assert set(EMBEDDED) == {folder.name for folder in (SOURCE / "models").iterdir() if folder.is_dir()}


def test_models_needs_no_torch() -> None:
    code = (
        "import sys; from relprop.cli import app; app(['models'], standalone_mode=False); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "False"


# Numbers and quiet


def test_numbers(relprop, model) -> None:
    """Every unit on its own line, with a tab, then what biases have: what the library has, summing to the value."""
    code, out, err = relprop("explain", "so\tunbelievable", "--model", model, "--numbers", "--target", 1)
    e = Explainer(*tiny("bert"))("so\tunbelievable", target=1, ledger=False)
    head, *lines = out.rstrip("\n").split("\n")
    assert (code, err) == (0, "")
    assert head.startswith(f"lrp_blend: positive = {e.value:.6g}, predicted {e.prediction}")
    numbers, names = zip(*(line.split("\t") for line in lines), strict=True)
    assert list(names) == [*(unit.text for unit in e.units), *(f"({name})" for name, _ in e.account)]
    assert [float(one) for one in numbers[: len(e.units)]] == pytest.approx(e.scores, abs=1e-5)
    assert sum(map(float, numbers)) == pytest.approx(e.value, abs=1e-5)
    assert e.account


@pytest.mark.parametrize("given", [("--smiles", "CCO"), ("--lm", "stories", "One day,", "--generate", 2)], ids=str)
def test_numbers_of_other_kinds(relprop, given) -> None:
    code, out, _ = relprop("explain", *given, "--numbers")
    assert code == 0
    assert out.count("lrp_conservative: ") == (2 if "--lm" in given else 1)
    assert len([line for line in out.splitlines() if re.fullmatch(r"[+-][\d.]+\t.+", line)]) >= 3


def test_quiet(relprop, model, tmp_path) -> None:
    code, out, err = relprop("explain", "good", "--model", model, "--quiet", "--json", tmp_path / "x.json")
    assert (code, out, err) == (0, "", "")
    assert (tmp_path / "x.json").exists()
    code, out, err = relprop("explain", "good", "--model", model, "-q")
    assert (code, out) == (1, "")
    assert "--quiet shows nothing: name a file" in err


def test_many_texts_are_one_line_each(relprop, model, tmp_path) -> None:
    (tmp_path / "lines.txt").write_text("good movie\n" * 50)
    code, out, err = relprop("explain", "--file", tmp_path / "lines.txt", "--model", model)
    assert code == 0
    assert len(out.splitlines()) == 50
    assert "50 in one line each" in err


# Hints


def test_a_text_without_quotes(relprop) -> None:
    code, out, err = relprop("explain", "a", "gorgeous", "movie")
    assert (code, out) == (1, "")
    assert err == 'relprop: the text came in 3 pieces: put it in quotes: relprop explain "a gorgeous movie"\n'


def test_a_text_that_is_the_name_of_a_file(relprop, model, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reviews.txt").write_text("good\n")
    Path("reviews.csv").write_text("text\ngood\n")
    code, _out, err = relprop("explain", "reviews.txt", "--model", model)
    assert code == 0
    assert err.startswith(
        'relprop: "reviews.txt" is explained as a text; for what the file holds: relprop explain --file'
    )
    assert "--column NAME" in relprop("explain", "reviews.csv", "--model", model)[2]
    assert relprop("explain", "reviews", "--model", model)[2] == ""


# Models that are not there


def test_slips_in_the_names_of_models(tmp_path, monkeypatch) -> None:
    """Nearly embedded, or nearly a folder: told at once. Neither the hub nor torch is asked."""
    monkeypatch.chdir(tmp_path)
    Path("own/bert-large").mkdir(parents=True)
    for name, near in (("sentimnt", "sentiment"), ("molecule", "molecules"), ("own/bert-larg", "own/bert-large")):
        with pytest.raises(ModelError, match=f'there is no model or folder "{name}"; did you mean "{near}"'):
            check_name(name)
    with pytest.raises(ModelError, match=r'there is no folder "./own/bert_large"; did you mean "own/bert-large"'):
        check_name("./own/bert_large")
    check_name("sentiment")
    check_name("own/bert-large")


def test_the_hub_is_asked_only_if_it_can_be_reached(monkeypatch) -> None:
    """Its own client tries for half a minute where there is no network."""
    from huggingface_hub import constants

    def nowhere(*_: object) -> None:
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("socket.getaddrinfo", nowhere)
    for proxy in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(proxy, raising=False)
    with pytest.raises(ModelError, match=r'there is no folder "some-body/some-model", and from the hub: .* reached'):
        check_name("some-body/some-model")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")  # which finds the hub by itself
    check_name("some-body/some-model")


def test_a_slip_is_told_before_torch_is_loaded() -> None:
    code = (
        "import sys\nfrom relprop.cli import app\n"
        "try: app(['explain', 'x', '--model', 'sentimnt'], standalone_mode=False)\n"
        "except Exception as error: print(error, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "did you mean" in done.stdout
    assert done.stdout.endswith("False\n")


# Its own words

WORDS = {
    "give target=(this, that) here": "give --target THIS,THAT here",
    "a question needs its context: explainer(question=..., context=...)": "a question needs its context: "
    "--question ... --context ...",
    "try heads.at(xi_pos=...)": "try --xi-pos ...",
    "batch_size must be at least 1": "--batch-size must be at least 1",
    'method "lrp" has no option "batch_size=(1, 2)"': 'method "lrp" has no option "batch_size=(1, 2)"',
    "the text has 2 masks: target=(number, token) names one": "the text has 2 masks: --target NUMBER,TOKEN names one",
}


@pytest.mark.parametrize("message", WORDS)
def test_errors_speak_of_options(message: str) -> None:
    """What a user typed stands in quotes, and is left alone."""
    assert command_words(message) == WORDS[message]


def messages(file: Path) -> list[str]:
    """The texts of all errors that a file raises."""
    raised = (node.exc for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Raise) and node.exc)
    texts = (node for one in raised for node in ast.walk(one) if isinstance(node, ast.Constant))
    return [node.value for node in texts if isinstance(node.value, str)]


def test_no_argument_of_python_is_left_in_any_error() -> None:
    """Of tasks, readers and the explainer, which the command line shows: name=... and name=(a, b) become options."""
    files = [*SOURCE.glob("tasks/*.py"), *SOURCE.glob("readers/*.py"), SOURCE / "explainer.py"]
    told = [command_words(text) for file in files for text in messages(file)]
    assert any("--target THIS,THAT" in text for text in told)
    assert not [text for text in told if re.search(r"\w+=(\.\.\.|\([a-z]+, [a-z]+\))", text)]


def test_against_another_class(relprop, model) -> None:
    """Of the class that is named, or of the predicted one."""
    text = "so unbelievable"
    e = Explainer(*tiny("bert"))(text)
    other = "negative" if e.prediction == "positive" else "positive"
    for target in (("--target", e.prediction), ()):
        code, out, err = relprop("explain", text, "--model", model, *target, "--against", other, "--numbers")
        assert (code, err) == (0, "")
        assert f"{e.prediction} - {other} = " in out
    code, _, err = relprop("explain", text, "--model", model, "--target", "positive,negative", "--against", "negative")
    assert (code, "give the contrast as a part of --target alone" in err) == (1, True)


def test_against_explains_the_next_token_alone(relprop) -> None:
    """As a pair of targets does, the predicted one first."""
    stories = Explainer("stories")
    prompt = "Once upon a time, there was a little girl named Lily. She had a red"
    e = stories(prompt, against="car")
    assert not e.steps
    likeliest = stories(prompt).prediction
    assert e.target == f"{likeliest} - 'car'"
    pair = stories(prompt, target=(likeliest.strip("'"), "car"))
    assert e.value == pytest.approx(pair.value, rel=1e-4)
    assert list(e.scores) == pytest.approx(list(pair.scores), abs=1e-3)
    code, out, _ = relprop("explain", "--lm", "stories", prompt, "--against", "runner-up")
    assert code == 0
    assert f"{likeliest} - " in out
    code, _, err = relprop("explain", "--lm", "stories", prompt, "--against", "car", "--target", "hat")
    assert code == 1
    assert "--target THIS,THAT" in err


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal of its own")
def test_loading_is_told_on_a_terminal_only() -> None:
    """While torch loads, on standard error, and then the line is empty again."""
    ours, theirs = os.openpty()
    code = "from relprop.cli.outputs import loading_note\nwith loading_note('torch'): pass"
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True)
    assert os.read(ours, 1000) == b"loading torch ...\r\x1b[K"
    os.close(ours)
    os.close(theirs)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stderr == b""


def test_garbage_collection_waits_while_models_load() -> None:
    """And goes on afterwards, also after an error; one that was off stays off."""
    within = []
    with suppress(ValueError), loading_note("a model"):
        within.append(gc.isenabled())
        raise ValueError
    assert (within, gc.isenabled()) == ([False], True)
    gc.disable()
    try:
        with loading_note("a model"):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


IMPORTS = """
import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.bert.modeling_bert import BertForSequenceClassification
"""


@pytest.mark.slow
def test_one_sentence_costs_little_more_than_the_imports(tmp_path: Path) -> None:
    """At most half a second of processor time more than importing torch and what transformers needs for the model."""
    commands = [["-c", IMPORTS], ["-m", "relprop", "explain", "a gorgeous, witty, seductive movie."]]
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as wherever relprop is installed

    def seconds(command: list[str]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    _, *runs = [[seconds(command) for command in commands] for _ in range(4)]
    imports, explain = (min(column) for column in zip(*runs, strict=True))
    print(f"imports {imports:.2f} s, explain {explain:.2f} s")
    assert explain - imports <= 0.5
