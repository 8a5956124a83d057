"""The command line: what a user types, reads and gets wrong."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import relprop.methods
from relprop import __version__
from relprop.cli import main
from relprop.explainer import Explainer
from relprop.explanation import Explanation
from relprop.registry import METHODS
from tokenizers_for_tests import saved, tiny

TEXT = "a gorgeous, witty, unbelievable movie."


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: str(saved(tmp_path_factory.mktemp(name), *tiny(name))) for name in ("bert", "lm", "qa", "gpt2")}


@pytest.fixture(scope="module")
def model(folders):
    return folders["bert"]


@pytest.fixture
def relprop(monkeypatch, capfd):
    """Runs the entry point in this process: `relprop("explain", "good", stdin=b"")`."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("warnings.showwarning", __import__("warnings").showwarning)  # `main` sets its own

    def run(*arguments: object, stdin: bytes = b"", terminal: bool = False) -> Run:
        given = io.BytesIO(stdin)
        given.isatty = lambda: terminal
        monkeypatch.setattr(sys, "argv", ["relprop", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given, encoding="utf-8"))
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Run(int(ended.value.code or 0), *capfd.readouterr())

    return run


def explanations(run: Run) -> list[Explanation]:
    assert (run.code, run.err) == (0, "")
    return [Explanation.from_json(line) for line in run.out.rstrip("\n").split("\n")]


# What comes out


def test_explain_shows_the_text(relprop, model):
    """Method, target, value, prediction, the text, its strongest words and the legend."""
    run = relprop("explain", TEXT, "--model", model)
    e = Explainer(*tiny("bert"))(TEXT)
    assert (run.code, run.err) == (0, "")
    told = ("lrp_blend", f"{e.target} = {e.value:.3f}", f"predicted {e.prediction}", TEXT, "sum of scores")
    for telling in told:
        assert telling in run.out
    assert f"{e.top(1)[0][1]:+.3f}  {e.top(1)[0][0].text}" in run.out
    assert "supports" in run.out


def test_json_on_standard_output_is_what_the_library_gives(relprop, model):
    """One line an explanation, nothing else."""
    (e,) = explanations(relprop("explain", TEXT, "--model", model, "--json", "-"))
    expected = Explainer(*tiny("bert"))([TEXT])[0]
    assert e.units == expected.units
    assert e.scores == pytest.approx(expected.scores, abs=1e-5)


LINES = "good movie\n\n  \nthe plot is dull\nשלום 日本\n"


@pytest.mark.parametrize("content", [LINES, LINES.replace("\n", "\r\n"), "\ufeff" + LINES, LINES.rstrip()])
@pytest.mark.parametrize("way", ["pipe", "dash", "file"])
def test_lines(relprop, model, tmp_path, way, content):
    """A pipe, '-' and a file are read line by line, blank lines left out, in order."""
    data = content.encode()
    (tmp_path / "lines.txt").write_bytes(data)
    options = {"pipe": [], "dash": ["-"], "file": ["--file", tmp_path / "lines.txt"]}[way]
    found = explanations(relprop("explain", *options, "--model", model, "--json", "-", stdin=data))
    assert [e.text for e in found] == [("good movie",), ("the plot is dull",), ("שלום 日本",)]


def test_a_line_ends_only_where_lines_end(relprop, model):
    """Unicode's other separators and form feeds stay inside a text."""
    text = "good\u2028bad\x0cmovie\x85film"
    (e,) = explanations(relprop("explain", "--model", model, "--json", "-", stdin=text.encode()))
    assert e.text == (text,)


def test_pairs(relprop, model):
    """--pair is the second text, of every line too."""
    (e,) = explanations(relprop("explain", "good", "--pair", "bad film", "--model", model, "--json", "-"))
    assert e.text == ("good", "bad film")
    found = explanations(relprop("explain", "--pair", "bad", "--model", model, "--json", "-", stdin=b"one\ntwo"))
    assert [e.text for e in found] == [("one", "bad"), ("two", "bad")]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("positive", "positive"),
        ("NEGATIVE", "negative"),
        ("1", "positive"),
        ("positive,negative", "positive - negative"),
        ("positive, negative", "positive - negative"),
        ("0,1", "negative - positive"),
    ],
)
def test_targets(relprop, model, target, name):
    """A name, an index, or two of them for a difference."""
    (e,) = explanations(relprop("explain", TEXT, "--target", target, "--model", model, "--json", "-"))
    assert e.target == name


def test_class_names_with_commas(relprop, tmp_path):
    """A class's own name is not taken apart."""
    network, tokenizer = tiny("bert")
    folder = saved(tmp_path, network, tokenizer)
    config = json.loads((folder / "config.json").read_text())
    config |= {"id2label": {"0": "bad, dull", "1": "good"}, "label2id": {"bad, dull": 0, "good": 1}}
    (folder / "config.json").write_text(json.dumps(config))
    (e,) = explanations(relprop("explain", TEXT, "--target", "bad, dull", "--model", folder, "--json", "-"))
    assert e.target == "bad, dull"


def test_tokens_as_targets(relprop, folders):
    """Language models: blanks count, in a difference too."""
    command = ("explain", "the film is", "--model", folders["lm"], "--json", "-", "--target")
    assert explanations(relprop(*command, " good"))[0].target == "' good'"
    assert explanations(relprop(*command, " good, bad"))[0].target == "' good' - ' bad'"


def test_questions(relprop, folders):
    """Question answering: the context is the pair's second text."""
    command = ("explain", "who?", "--pair", "the good movie", "--model", folders["qa"], "--json", "-", "--target")
    assert explanations(relprop(*command, "start"))[0].target.startswith("start ")
    assert explanations(relprop(*command, "4,8"))[0].target == "'good'"


@pytest.mark.parametrize("name", ["integrated-gradients", "integrated_gradients"])
def test_method_names(relprop, model, name):
    """With hyphens or underscores."""
    (e,) = explanations(relprop("explain", TEXT, "--method", name, "--model", model, "--json", "-"))
    assert e.method == "integrated_gradients"


def test_words_and_special_tokens(relprop, model):
    """--words merges, --drop-special leaves out."""
    plain, words, dropped, both = (
        explanations(relprop("explain", TEXT, "--model", model, "--json", "-", *options))[0]
        for options in ([], ["--words"], ["--drop-special"], ["--words", "--drop-special"])
    )
    assert words == plain.words()
    assert dropped == plain.without_special()
    assert [unit.text for unit in both.units] == ["a", "gorgeous", ",", "witty", ",", "unbelievable", "movie", "."]


def test_compare_stacks_methods(relprop, model):
    """Text by text, method under method."""
    command = ("explain", "--model", model, "--compare", "lrp-ah-ln, gradient,random")
    found = explanations(relprop(*command, "--json", "-", stdin=b"good\nbad film"))
    methods = ["lrp_ah_ln", "gradient", "random"]
    assert [(e.text[0], e.method) for e in found] == [(text, m) for text in ("good", "bad film") for m in methods]
    shown = relprop(*command, stdin=b"good").out
    assert shown.index("lrp_ah_ln") < shown.index("gradient") < shown.index("random")


def test_files(relprop, model, tmp_path):
    """Page, picture and numbers in one go; each is announced, and the text is still shown."""
    html, png, numbers = tmp_path / "a.html", tmp_path / "b.svg", tmp_path / "c.json"
    run = relprop("explain", TEXT, "--model", model, "--html", html, "--png", png, "--json", numbers)
    assert run.code == 0
    assert run.err == f"wrote {html}\nwrote {png}\nwrote {numbers}\n"
    assert TEXT in run.out
    e = Explanation.from_json(numbers.read_text("utf-8"))
    assert e.to_html() == html.read_text("utf-8")
    assert "<svg" in png.read_text("utf-8")


def test_ledger(relprop, model):
    """--ledger prints the books: totals, modules, and that unsigned scores have none."""
    run = relprop("explain", TEXT, "--model", model, "--ledger", "--compare", "lrp_conservative,gradient")
    assert (run.code, run.err) == (0, "")
    for telling in ("inputs (sum of the scores)", "biases", "= value", "classifier: linear", "gradient has no ledger"):
        assert telling in run.out
    (e,) = explanations(relprop("explain", TEXT, "--model", model, "--ledger", "--json", "-"))
    assert e.ledger.itemised


@pytest.mark.filterwarnings("default")
def test_long_texts_warn_in_one_line(relprop, model):
    """What was cut is told on standard error, without a source line."""
    run = relprop("explain", "good " * 100, "--model", model)
    assert run.code == 0
    assert len(run.err.splitlines()) == 1
    assert run.err.startswith("relprop: the text has 102 tokens, 64 are read: cut off from character 309 on ('good")


def test_methods_lists_every_method(relprop):
    """One line each, with its family, the defaults first: less than a screen."""
    run = relprop("methods")
    assert (run.code, run.err) == (0, "")
    rows = [line.split() for line in run.out.splitlines() if line.strip(" ─")][1:]
    assert [row[0] for row in rows[:3]] == ["lrp_blend", "lrp_full", "lrp_conservative"]
    assert {row[0]: row[1] for row in rows} == {record.name: record.family for record in METHODS.every()}
    assert len(rows) == len(METHODS.every())
    for record in METHODS:
        assert record.summary in run.out


def test_one_method_in_full(relprop):
    """What it does, its options with their defaults, its source, and how to use it; hyphens are taken too."""
    run = relprop("methods", "integrated-gradients")
    record = METHODS["integrated_gradients"]
    assert (run.code, run.err) == (0, "")
    for told in (record.summary, "steps=50", record.citation, "--method integrated_gradients", "signed"):
        assert told in run.out
    wrong = relprop("methods", "integrated")
    assert (wrong.code, wrong.out) == (1, "")
    assert 'method "integrated" is unknown' in wrong.err


@pytest.mark.parametrize("name", ["bert", "lm", "qa", "gpt2"])
def test_check(relprop, folders, name):
    """Operations, ledger and verdict; exit code 0 where the ledger closes."""
    run = relprop("check", folders[name])
    assert (run.code, run.err) == (0, "")
    assert "scaled_dot_product_attention" in run.out
    assert "outputs: unchanged" in run.out
    assert "verdict: the ledger closes" in run.out
    assert "= value" in run.out


def test_check_of_open_books(relprop, model):
    """Rules that do not conserve: exit code 1, and the operation at fault is named and comes first."""
    run = relprop("check", model, "--rules", "gradient", "--target", "positive", "--text", TEXT)
    assert (run.code, run.err) == (1, "")
    verdict = next(line for line in run.out.splitlines() if line.startswith("verdict"))
    assert "the ledger does not close" in verdict
    table = [line.split() for line in run.out.split("\ninputs (sum")[0].splitlines() if line.strip(" ─")][1:]
    unexplained = [abs(float(row[-1])) for row in table]
    assert unexplained[0] == max(unexplained) > 0.1
    largest = next(line for line in run.out.splitlines() if line.startswith("unexplained  bert"))
    assert f"{largest.split(':')[1].split()[0]} in" in verdict


def test_version(relprop):
    """One line."""
    assert relprop("--version").out == f"relprop {__version__}\n"


# What goes wrong


def wrong(name: str, *arguments: object, message: str, stdin: bytes = b"") -> object:
    return pytest.param(arguments, stdin, message, id=name)


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        wrong("empty", "explain", "", message="the text is empty: there is nothing to explain"),
        wrong("blank", "explain", " \n", message="the text is empty"),
        wrong("empty stdin", "explain", message="the text is empty: standard input has no line to explain"),
        wrong("blank stdin", "explain", "-", stdin=b"\n \n", message="standard input has no line"),
        wrong("binary stdin", "explain", stdin=b"good \xff", message="standard input is not UTF-8 text (at byte 5)"),
        wrong("half a character", "explain", "a\udcff", message="not valid Unicode"),
        wrong("empty pair", "explain", "good", "--pair", "", message="the text is empty"),
        wrong("no file", "explain", "--file", "/no/file", message='cannot read "/no/file": No such file'),
        wrong("file is folder", "explain", "--file", "/tmp", message='cannot read "/tmp": Is a directory'),
        wrong("two texts", "explain", "good", "--file", "x", message="give either a text or --file, not both"),
        wrong(
            "method", "explain", "good", "--method", "attnlrp",
            message='method "attnlrp" is unknown; did you mean "attn_lrp"? (relprop methods lists all',
        ),
        wrong("compare", "explain", "good", "--compare", "lrp-ah,lpr-ln", message='did you mean "lrp_ln"?'),
        wrong("compare comma", "explain", "good", "--compare", "lrp-ah,", message='method "" is unknown'),
        wrong("target", "explain", "good", "--target", "positve", message='unknown; did you mean "positive"?'),
        wrong("far target", "explain", "good", "--target", "joy", message="known: negative, positive"),
        wrong("index", "explain", "good", "--target", "2", message="target 2 is out of range: the model has classes"),
        wrong("negative index", "explain", "good", "--target", "-1", message="target -1 is out of range"),
        wrong("no index", "explain", "good", "--target", "--1", message='target "--1" is unknown'),
        wrong("odd digit", "explain", "good", "--target", "²", message='target "²" is unknown'),
        wrong("empty target", "explain", "good", "--target", "", message='target "" is unknown'),
        wrong("three targets", "explain", "good", "--target", "0,1,0", message="a difference takes two targets, got 3"),
        wrong("batch", "explain", "good", "--batch-size", "0", message="--batch-size must be at least 1, got 0"),
        wrong("html", "explain", "good", "--html", "x.htm", message='cannot write "x.htm": the name must end in .html'),
        wrong("png", "explain", "good", "--png", "x.jpg", message="must end in .png, .svg or .pdf"),
        wrong("json", "explain", "good", "--json", "x.txt", message="must end in .json"),
        wrong("no folder", "explain", "good", "--html", "/no/x.html", message='there is no folder "/no"'),
        wrong("rules", "check", "--rules", "lrp_conservativ", message='did you mean "lrp_conservative"?'),
        wrong("check text", "check", "--text", " ", message="the text is empty"),
        wrong("check target", "check", "--target", "9", message="target 9 is out of range"),
    ],
)  # fmt: skip
def test_mistakes(relprop, model, arguments, stdin, message):
    """Exit code 1 and one sentence on standard error; nothing on standard output, no traceback."""
    where = [model] if arguments[0] == "check" else ["--model", model]
    run = relprop(arguments[0], *where, *arguments[1:], stdin=stdin)
    assert run.code == 1
    assert run.out == ""
    assert run.err.startswith("relprop: ")
    assert message in run.err
    assert len(run.err.splitlines()) == 1


@pytest.mark.parametrize("command", [["explain", "good", "--model"], ["check"]], ids=["explain", "check"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/no/such/model", 'there is no folder "/no/such/model"'),
        ("some-body/some-model", 'there is no folder "some-body/some-model", and from the hub'),
        ("{tmp}", "holds no model: config.json is missing"),
    ],
    ids=["path", "hub", "empty"],
)
def test_missing_models(relprop, tmp_path, command, name, message):
    """The same, for models."""
    run = relprop(*command, name.format(tmp=tmp_path))
    assert (run.code, run.out, len(run.err.splitlines())) == (1, "", 1)
    assert message in run.err


@pytest.mark.parametrize("option", ["--html", "--png", "--json"])
def test_outputs_are_checked_before_any_work(relprop, tmp_path, option, monkeypatch):
    """A folder that cannot be written to is told before a model is even looked for."""

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("relprop.files.TemporaryFile", refuse)  # root may write everywhere
    path = tmp_path / f"x.{option[2:]}"
    run = relprop("explain", "good", "--model", "/no/such/model", option, path)
    assert (run.code, run.err) == (1, f'relprop: cannot write "{path}": Permission denied\n')


def test_nothing_to_explain_at_a_terminal(relprop):
    """Who types `relprop explain` alone is told how, and not left waiting."""
    run = relprop("explain", terminal=True)
    assert run.code == 1
    assert 'there is nothing to explain: relprop explain "your text"' in run.err


def test_ctrl_c(relprop, monkeypatch, model):
    """Stopping is no crash."""

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("relprop.explainer.Explainer.__call__", stopped)
    run = relprop("explain", "good", "--model", model)
    assert run.code == 130
    assert "Traceback" not in run.err


# The real thing, in a process of its own


def process(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("relprop"), *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, encoding="utf-8", **options)


def test_a_pipe_through_the_command(model):
    """Installed, with a real pipe: colours are off, the text is shown, standard error is silent."""
    done = process("explain", "--model", model, "--words", input="an unbelievable movie 日本\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "an unbelievable movie 日本" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_mistake_through_the_command(model):
    """Installed: one line, exit code 1."""
    done = process("explain", "good", "--model", model, "--target", "postive")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'relprop: target "postive" is unknown; did you mean "positive"?\n'


def test_help_loads_nothing_heavy():
    """`relprop --help` answers at once: it imports the commands themselves, and none of what they use."""
    code = "import sys; from relprop.cli import app; app(['--help'], standalone_mode=False)\n"
    code += "print('LOADED', *{name.partition('.')[0] for name in sys.modules}, *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.rpartition("LOADED ")[2].split())
    assert "explain" in done.stdout
    assert not loaded & {"torch", "transformers", "numpy", "scipy", "matplotlib", "PIL", "rich", "networkx", "fastapi"}
    own = {name for name in loaded if name.startswith("relprop.") and not name.startswith("relprop.cli")}
    assert own == {"relprop.errors", "relprop.progress"}


@pytest.mark.parametrize("module", ["relprop", "relprop.cli", "relprop.explanation"])
def test_light_imports(module):
    """Neither torch nor what draws is loaded before it is needed."""
    code = f"import sys, {module}; print({{'torch', 'transformers', 'numpy', 'matplotlib'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
