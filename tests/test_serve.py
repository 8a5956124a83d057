"""The service speaks KServe's protocol: what can be asked, what is answered, and what is said of mistakes."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from PIL import Image
from PIL.ImageFile import ImageFile

from relprop.explainer import Explainer
from relprop.explanation import Explanation
from relprop.graph.graphormer import Graphormer, Settings
from relprop.graph.molecules import BONDS, CATEGORIES, from_smiles
from relprop.registry import METHODS
from relprop.render.image.part import Frame, ImagePart
from relprop.render.text.part import TextPart
from relprop.serve.answers import flat_explanation
from relprop.serve.instances import atoms_and_bonds
from relprop.serve.models import ServedModel
from relprop.serve.options import MOST, OTHER_BOUNDS, option_types, typed_options
from relprop.types import Unit
from serving_for_tests import TEXT, Live, patient, serving
from test_images import picture, vit
from tokenizers_for_tests import tiny

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
CONTEXT = "the movie is a good film and the plot is dull"


def graphormer() -> Explainer:
    return Explainer(Graphormer(Settings(("no", "yes"), CATEGORIES, edge_types=BONDS, width=32, reads="smiles")).eval())


@pytest.fixture(scope="module")
def explainers() -> dict[str, Explainer]:
    made = {name: Explainer(*tiny(name)) for name in ("bert", "qa", "lm")}
    return {"sentiment": Explainer("sentiment"), **made, "vit": vit(), "graphs": graphormer()}


@pytest.fixture(scope="module")
def live(explainers: dict[str, Explainer]) -> Iterator[Live]:
    with serving({**explainers, "broken": "/nowhere"}, limits=patient()) as live:
        live.wait("/v2/models/graphs/ready")
        yield live


def png(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def close(found: dict[str, Any], expected: Explanation) -> None:
    """What was answered loads as the explanation expected, equal but for rounding: a batch pads."""
    assert "parts" not in found
    loaded = Explanation.from_json(json.dumps(found))
    words, numbers = split(loaded)
    own_words, own_numbers = split(expected)
    assert words == own_words
    for name, own in own_numbers.items():
        assert numbers[name] == pytest.approx(own, rel=1e-4, abs=1e-6), name


def split(explanation: Explanation) -> tuple[dict[str, Any], dict[str, Any]]:
    """What must be equal, and the numbers. The flat form does not repeat the model, nor whether scores have a sign."""
    whole = json.loads(explanation.to_json())
    (part,) = whole["parts"]
    numbers = {name: whole.pop(name) for name in ("value", "probability")}
    numbers["scores"] = np.array(part.pop("scores"))
    numbers["rest"] = part.pop("rest", 0.0)
    ledger = whole.pop("ledger")
    del whole["signed"], whole["model"]
    return {**whole, "entries": ledger and len(ledger["entries"])}, numbers


def test_the_answers_form_is_flat(live: Live) -> None:
    """Clients, the page among them, know these names."""
    common = {
        "schema_version",
        "method",
        "target",
        "value",
        "prediction",
        "probability",
        "baseline",
        "ledger",
        "scores",
    }
    expected = {
        "bert": {"text", "units", "truncated", "merged", "answer"},
        "vit": {"kind", "size", "frame", "rest", "name"},
        "graphs": {"kind", "graph", "rest", "edge_scores"},
    }
    for name, own in expected.items():
        (found,) = live.explain(INSTANCES[name][0], model=name).json["explanations"]
        assert found["schema_version"] == 1
        assert common | own <= set(found)
    assert {"names", "edges", "places"} <= set(found["graph"])


def test_two_texts_are_one_row_and_other_mixtures_keep_their_parts() -> None:
    """As a model with a decoder reads them; version 1 has no form for a text beside a picture."""
    source = TextPart("input_ids", ("good film",), (Unit("good", 0, 4), Unit("film", 5, 9)), (1.0, 2.0))
    target = TextPart("decoder_input_ids", ("so",), (Unit("so", 0, 2),), (3.0,))
    found = flat_explanation(Explanation((source, target), "lrp_ah_ln", "x", 6.0))
    assert [(unit["text"], unit["segment"]) for unit in found["units"]] == [("good", 0), ("film", 0), ("so", 1)]
    loaded = Explanation.from_json(json.dumps(found))
    assert (loaded.text, loaded.scores) == (("good film", "so"), (1.0, 2.0, 3.0))
    image = ImagePart("pixel_values", (2, 2), np.ones((1, 1)), Frame(0, 0, 2, 2))
    mixed = Explanation((source, image), "lrp_ah_ln", "x", 4.0)
    assert flat_explanation(mixed) == {**json.loads(mixed.to_json()), "account": []}
    assert Explanation.from_json(json.dumps(flat_explanation(mixed))).value == mixed.value


# Health and what there is.


def test_models_are_listed_and_told_about(live: Live) -> None:
    assert live.get("/v1/models").json == {"models": ["sentiment", "bert", "qa", "lm", "vit", "graphs", "broken"]}
    told = live.get("/v1/models/sentiment").json
    assert (told["name"], told["ready"], told["kind"], told["input"]) == ("sentiment", True, "texts", "text")
    assert told["labels"] == ["negative", "positive"]
    assert told["heads"]["kinds"][0][2] == "positional"
    kinds = {name: live.get(f"/v1/models/{name}").json for name in ("qa", "lm", "vit", "graphs")}
    assert {name: (one["kind"], one["input"]) for name, one in kinds.items()} == {
        "qa": ("questions", "question"), "lm": ("language", "text"), "vit": ("images", "picture"),
        "graphs": ("graphs", "smiles"),
    }  # fmt: skip
    assert kinds["lm"]["labels"] == []
    assert kinds["graphs"]["labels"] == ["no", "yes"]
    assert told["default_method"] == "lrp_blend"
    assert [kinds[name]["default_method"] for name in ("vit", "graphs")] == ["lrp_full", "lrp_conservative"]
    assert live.get("/v2/models/bert/ready").json == {"name": "bert", "ready": True}


def test_a_model_that_fails_to_load_makes_readiness_false_and_says_why(live: Live) -> None:
    """The others are served all the same."""
    answer = live.get("/v2/health/ready")
    assert (answer.status, answer.json["ready"]) == (503, False)
    assert answer.error == 'the model "broken" cannot be served: there is no folder "/nowhere"'
    told = live.get("/v1/models/broken").json
    assert (told["ready"], told["reason"]) == (False, 'cannot be served: there is no folder "/nowhere"')
    assert live.get("/v2/models/broken/ready").status == 503
    refused = live.explain(TEXT, model="broken")
    assert (refused.status, refused.error) == (503, answer.error)
    assert live.get("/v2/health/live").json == {"live": True}
    assert live.explain(TEXT).status == 200


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_loaded_in_float32_on_a_cpu(tmp_path: Path, dtype: torch.dtype) -> None:
    """Where half precision is many times slower; an explainer that is given stays as it is, and is served so."""
    given = Explainer("sentiment")
    given.model.to(dtype).save_pretrained(tmp_path)
    given.tokenizer.save_pretrained(tmp_path)
    served = {source: ServedModel("mine", source) for source in (str(tmp_path), given)}
    for one in served.values():
        one.load()
    types = [{p.dtype for p in one.explainer.model.parameters()} for one in served.values()]
    assert types == [{torch.float32}, {dtype}]
    assert {p.dtype for p in Explainer(tmp_path).model.parameters()} == {torch.float32}


def test_the_root_says_that_it_lives(live: Live) -> None:
    """As KServe's own clients of V1 ask it."""
    assert live.get("/", accept="*/*").json == {"status": "alive"}


def test_every_answer_is_safe_to_show(live: Live) -> None:
    for answer in (live.get("/v1/models"), live.get("/nothing"), live.explain(""), live.get("/v2/health/live")):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers


# Explanations are the library's own.


def test_explanations_are_the_librarys_own(live: Live, explainers: dict[str, Explainer]) -> None:
    answer = live.explain(TEXT, "dull", target="positive", method="lrp_ah_ln").json
    expected = explainers["sentiment"]([TEXT, "dull"], target="positive", method="lrp_ah_ln")
    for found, one in zip(answer["explanations"], expected, strict=True):
        close(found, one)
    assert [one["prediction"] for one in answer["predictions"]] == [one.prediction for one in expected]


def test_several_methods_give_a_list_each(live: Live, explainers: dict[str, Explainer]) -> None:
    names = ["lrp-conservative", "gradient_x_input", "rollout"]
    answer = live.explain(TEXT, "a dull film", methods=names, words=True, special="drop", options={"start_block": 1})
    expected = explainers["sentiment"]([TEXT, "a dull film"], method=names, special="drop", start_block=1)
    for found, each in zip(answer.json["explanations"], expected, strict=True):
        assert [one["method"] for one in found] == ["lrp_conservative", "gradient_x_input", "rollout"]
        for one, own in zip(found, each, strict=True):
            close(one, own.words())


def test_a_difference_and_its_ledger(live: Live, explainers: dict[str, Explainer]) -> None:
    found = live.explain(TEXT, target=["positive", 0], ledger=True).json["explanations"][0]
    own = explainers["sentiment"](TEXT, target=("positive", 0))
    close(found, own)
    assert len(found["ledger"]["entries"]) == len(own.ledger.entries) > 10


INSTANCES: dict[str, list[Any]] = {
    "bert": ["a good movie", {"text": "a good movie"}, ["a good movie", "not bad"], {"text": "a", "pair": "good"}],
    "qa": [["is it good", CONTEXT], {"question": "is it good", "context": CONTEXT}],
    "lm": ["the movie", {"text": "the movie"}],
    "vit": [{"b64": png(picture())}, {"image": {"b64": png(picture(seed=1))}}],
    "graphs": [ASPIRIN, {"smiles": "CCO"}],
}
GIVEN: dict[str, list[Any]] = {
    "bert": ["a good movie", "a good movie", ("a good movie", "not bad"), ("a", "good")],
    "qa": [("is it good", CONTEXT)] * 2,
    "lm": ["the movie"] * 2,
    "vit": [picture(), picture(seed=1)],
    "graphs": [ASPIRIN, "CCO"],
}


@pytest.mark.parametrize("name", INSTANCES)
def test_every_kind_of_instance(live: Live, explainers: dict[str, Explainer], name: str) -> None:
    answer = live.explain(*INSTANCES[name], model=name)
    assert answer.status == 200, answer.content
    for found, one in zip(answer.json["explanations"], explainers[name](GIVEN[name]), strict=True):
        close(found, one)


@pytest.mark.parametrize("name", INSTANCES)
def test_predictions_agree_with_explanations(live: Live, name: str) -> None:
    predicted = live.post(f"/v1/models/{name}:predict", {"instances": INSTANCES[name]}).json["predictions"]
    explained = live.explain(*INSTANCES[name], model=name).json["predictions"]
    for one, other in zip(predicted, explained, strict=True):
        assert one["prediction"] == other["prediction"]
        assert one["probability"] == pytest.approx(other["probability"], rel=1e-5)
        assert ("probabilities" in one) == (name != "qa")


def test_of_many_classes_the_likeliest_are_told(live: Live) -> None:
    (one,) = live.post("/v1/models/lm:predict", {"instances": ["the movie"]}).json["predictions"]
    sure = [each["probability"] for each in one["probabilities"]]
    assert (len(sure), sure) == (10, sorted(sure, reverse=True))
    assert one["probabilities"][0] == {"label": one["prediction"], "probability": one["probability"]}


def test_a_file_to_keep(live: Live, explainers: dict[str, Explainer]) -> None:
    body = {"instances": [TEXT], "parameters": {"methods": ["lrp_ah_ln", "rollout"]}}
    html = live.post("/v1/models/sentiment:render", {**body, "format": "html"})
    assert html.headers["content-disposition"] == 'attachment; filename="relprop.html"'
    assert html.content.decode().startswith("<!") or "<html" in html.content.decode()
    drawn = live.post("/v1/models/sentiment:render", {**body, "format": "png"})
    assert Image.open(io.BytesIO(drawn.content)).format == drawn.headers["content-type"].removeprefix("image/").upper()
    told = live.post("/v1/models/sentiment:render", {**body, "format": "json"}).json
    assert [one["method"] for one in told] == ["lrp_ah_ln", "rollout"]
    pixels = live.post("/v1/models/vit:render", {"instances": INSTANCES["vit"][:1], "format": "png"})
    assert (pixels.status, pixels.headers["content-type"]) == (200, "image/png")


# Mistakes.

NET = 40 * ("*" + "".join(f"%{number}" for number in range(10, 40)))  # atoms with thirty ring bonds each


def asking(method: str, instances: list[str], **options: int) -> dict[str, Any]:
    return {"instances": instances, "parameters": {"method": method, "options": options}}


MISTAKES: list[tuple[str, Any, int, str]] = [
    ("sentiment:explain", b"{", 400, "Invalid JSON: EOF while parsing an object"),
    ("sentiment:explain", b"[" * 10_000, 400, "Invalid JSON"),
    ("sentiment:explain", {}, 422, "instances: Field required"),
    ("sentiment:explain", {"instances": []}, 422, "instances: List should have at least 1 item"),
    ("sentiment:explain", {"instances": ["a"], "parameter": {}}, 422, "parameter: Extra inputs are not permitted"),
    ("sentiment:explain", {"instances": ["a"], "parameters": {"ledger": 1}}, 422, "parameters.ledger: "),
    ("nothing:explain", {"instances": ["a"]}, 404, 'model "nothing" is unknown; known: bert, broken'),
    ("sentiment:explain", {"instances": ["a", ""]}, 400, "instance 1: the text is empty: there is nothing to explain"),
    ("sentiment:explain", {"instances": [7]}, 400, 'an instance is a text, ["text", "second text"]'),
    ("sentiment:explain", {"instances": [["a", "b", "c"]]}, 400, "an instance is a text"),
    ("sentiment:explain", {"instances": [{"txt": "a"}]}, 400, "an instance is a text"),
    ("sentiment:explain", {"instances": ["x" * 10_001]}, 413, "10,001 characters; at most 10,000"),
    ("sentiment:explain", {"instances": ["a"] * 65}, 413, "65 instances by 1 methods are 65; at most 64"),
    ("sentiment:explain", {"instances": [{"b64": "eA=="}]}, 400, "an instance is a text"),
    ("vit:explain", {"instances": ["/etc/passwd"]}, 400, 'an instance is {"b64": "..."}'),
    ("vit:explain", {"instances": [{"b64": "!"}]}, 400, "the picture is not in base64"),
    ("vit:explain", {"instances": [{"b64": "eA=="}]}, 400, "the picture cannot be read; it should be one of (BMP, GIF"),
    ("vit:explain", {"instances": [{"b64": png(picture())[:300] + "="}]}, 400, "the image cannot be read"),
    ("vit:explain", {"instances": [{"b64": png(Image.new("1", (4000, 4000)))}]}, 413, "4000 x 4000 pixels; at most"),
    ("vit:explain", {"instances": [{"b64": png(Image.new("1", (20_000, 10_000)))}]}, 413, "the picture is too large"),
    ("graphs:explain", {"instances": ["not a molecule"]}, 400, "is no SMILES that rdkit can read"),
    ("graphs:explain", {"instances": ["C" * 2_500]}, 413, "the molecule has 2,500 atoms; at most 256 are taken"),
    ("graphs:explain", {"instances": ["C", NET]}, 413, "instance 1: the molecule has 639 bonds; at most 384 are taken"),
    (
        "graphs:explain",
        {"instances": [{"b64": png(Image.new("1", (513, 512)))}]},
        413,
        "513 x 512 pixels; at most 262,144",
    ),
    (
        "sentiment:explain",
        asking("integrated_gradients", 64 * ["a " * 300], steps=1_000),
        413,
        "this takes 64,064 passes over up to 256 units and 2 blocks, work of 32,800,768; at most 10,000,000 is taken",
    ),
    ("sentiment:explain", asking("smoothgrad", 64 * ["a " * 300], samples=1_000), 413, "this takes 64,064 passes"),
    ("sentiment:explain", asking("shapley", 10 * ["a " * 300]), 413, "this takes 51,310 passes over up to 256 units"),
    ("qa:explain", {"instances": ["only one"]}, 400, "a question needs its context"),
]
PARAMETERS: list[tuple[str, dict[str, Any], str]] = [
    ("sentiment", {"method": "lrpahln"}, 'method "lrpahln" is unknown; did you mean "lrp_ah_ln"?'),
    ("sentiment", {"method": "lrp", "methods": ["lrp"]}, 'give either "method" or "methods", not both'),
    ("sentiment", {"methods": ["lrp", "lrp"]}, "a method is named twice"),
    ("sentiment", {"target": "posi"}, 'target "posi" is unknown; did you mean "positive"?'),
    ("sentiment", {"target": 7}, "target 7 is out of range: the model has classes 0 to 1"),
    ("sentiment", {"options": {"steps": 3}}, 'method "lrp_blend" has no option "steps"'),
    ("sentiment", {"methods": ["lrp", "gae"], "options": {"steps": 3}}, 'method "lrp" has no option "steps"'),
    ("sentiment", {"options": {"ledger": True}}, '"ledger" belongs to the parameters, not to the options'),
    ("sentiment", {"method": "occlusion", "ledger": True}, 'method "occlusion" has no option "ledger"'),
    ("sentiment", {"method": "integrated_gradients", "options": {"steps": "9"}}, 'the option "steps" of integrated_'),
    ("sentiment", {"method": "integrated_gradients", "options": {"steps": 10**6}}, "less than or equal to 1000"),
    ("sentiment", {"method": "rollout", "options": {"start_block": 9}}, "start_block 9 is out of range"),
    ("sentiment", {"method": "mask_lrp", "options": {"mask": [[True], [True, False]]}}, "a table of equal rows"),
    ("sentiment", {"method": "mask_lrp", "options": {"mask": [[True]]}}, "the head mask has shape (1, 1)"),
    ("bert", {"method": "mask_lrp", "options": {"mask": "both"}}, "which heads of bert are syntactic or positional"),
]


@pytest.mark.parametrize(("path", "body", "status", "says"), MISTAKES)
def test_mistakes_are_said_in_a_sentence(live: Live, path: str, body: Any, status: int, says: str) -> None:
    answer = live.post(f"/v1/models/{path}", body)
    assert answer.status == status, answer.content
    assert says in answer.error


@pytest.mark.parametrize(("model", "parameters", "says"), PARAMETERS)
def test_parameters_that_do_not_fit(live: Live, model: str, parameters: dict[str, Any], says: str) -> None:
    answer = live.explain("a good movie", model=model, **parameters)
    assert (answer.status, says in answer.error) == (400, True), answer.content


def test_tokens_and_work_are_bounded_by_settings() -> None:
    """Texts are counted in tokens, not in characters, wherever these might be too many."""
    limits = patient(tokens=10, work=2 * 8 * 8)  # two blocks
    with serving({"bert": Explainer(*tiny("bert"))}, limits=limits) as live:
        live.wait()
        refused = live.explain("good", " ".join(["good"] * 9), model="bert")
        assert (refused.status, refused.error) == (413, "instance 1 has 11 tokens; at most 10 are taken")
        assert live.explain(" ".join(["good"] * 8), model="bert").status == 200
        assert live.explain(" ".join(["good"] * 5), model="bert", method="alti").status == 200
        refused = live.explain("good", " ".join(["good"] * 6), model="bert", method="alti")
        assert refused.status == 413
        assert refused.error.startswith(
            "this takes 11 passes over up to 8 units and 2 blocks, work of 146; at most 128"
        )


def test_pictures_have_no_tokens() -> None:
    """Many small patches are no reason to refuse a picture."""
    with serving({"vit": vit()}, limits=patient(tokens=1)) as live:
        live.wait()
        assert live.explain(INSTANCES["vit"][0], model="vit").status == 200


def test_pictures_are_decoded_by_the_worker_alone(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which health does not wait for; a header that lies is an error like any other."""
    loaded: list[str] = []
    real = ImageFile.load
    monkeypatch.setattr(ImageFile, "load", lambda self: (loaded.append(threading.current_thread().name), real(self))[1])
    assert live.explain(INSTANCES["vit"][0], model="vit").status == 200
    assert set(loaded) == {"relprop"}


def test_atoms_and_bonds_are_counted_as_rdkit_does() -> None:
    molecules = [
        ASPIRIN,
        "C[C@H](N)C(=O)O",
        "[Na+].[Cl-]",
        "c1ccc2ccccc2c1",
        "C%10CCCC%10",
        "BrCCCl",
        "[13CH4]",
        "OB(O)c1ccccc1",
    ]
    for smiles in molecules:
        graph = from_smiles(smiles)
        atoms, bonds = atoms_and_bonds(smiles)
        assert (atoms, bonds) == (len(graph), len(graph.edges) + smiles.count("."))
    assert atoms_and_bonds("[" * 10_000) == (0, 0)


def test_words_are_for_texts(live: Live) -> None:
    answer = live.explain(*INSTANCES["vit"], model="vit", words=True)
    assert (answer.status, answer.error) == (400, "words need texts; vit reads images")


def test_only_json_is_read(live: Live) -> None:
    """A form, which any site may send, is not."""
    answer = live.post("/v1/models/sentiment:explain", {"instances": ["a"]}, content_type="text/plain")
    assert (answer.status, "must be JSON" in answer.error) == (415, True)


def test_addresses_that_are_none(live: Live) -> None:
    assert (live.get("/v1/nothing").status, live.get("/v1/nothing").error) == (404, "Not Found")
    assert live.get("/v1/models/sentiment:explain").status in (404, 405)
    assert live.get("/redoc").status == 404


# What may ask.


def test_a_token_keeps_others_out() -> None:
    with serving({"bert": Explainer(*tiny("bert"))}, token="sésame") as live:
        live.wait()
        for path in ("/v1/models", "/v1/models/bert", "/v1/methods", "/metrics", "/v2/models/bert/ready"):
            refused = live.get(path)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert live.get(path, authorization="Bearer wrong").status == 401
            assert live.get(path, authorization="sésame".encode().decode("latin-1")).status == 401
        assert live.post("/v1/models/bert:explain", {"instances": ["a"]}).status == 401
        good = {"authorization": "Bearer sésame".encode().decode("latin-1")}
        assert live.get("/v1/models", **good).status == 200
        assert live.post("/v1/models/bert:explain", {"instances": ["a"]}, **good).status == 200
        assert live.get("/v2/health/ready").status == live.get("/v2/health/live").status == 200


def test_pages_of_other_names_that_point_here_are_refused() -> None:
    """DNS rebinding: a stranger's page calls this machine by its own name."""
    with serving({"bert": Explainer(*tiny("bert"))}, hosts=("localhost", "127.0.0.1", "[::1]")) as live:
        for host in ("localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]", "[::1]:80"):
            assert live.get("/v2/health/live", host=host).status == 200, host
        for host in ("evil.example", "evil.example:80", "localhost.evil.example", "[::2]:80", ""):
            refused = live.get("/v2/health/live", host=host)
            assert (refused.status, "answers to localhost" in refused.error) == (403, True), host


# The registry is the schema.


def test_methods_are_the_registrys(live: Live) -> None:
    told = live.get("/v1/methods").json["methods"]
    assert [one["name"] for one in told] == [record.name for record in METHODS.every()]
    for one in told:
        record = METHODS[one["name"]]
        assert {name: value["default"] for name, value in one["options"].items()} == {
            name: default for name, default in record.options.items() if name != "ledger"
        }
        assert (one["signed"], one["family"], one["citation"]) == (record.signed, record.family, record.citation)
        assert one["summary"] == record.summary != ""


def test_openapi_tells_every_method_and_option(live: Live) -> None:
    schema = live.get("/openapi.json").json
    parts = schema["components"]["schemas"]
    assert parts["Parameters"]["properties"]["method"]["enum"] == [record.name for record in METHODS.every()]
    told = {one["title"]: set(one["properties"]) for one in parts["Parameters"]["properties"]["options"]["anyOf"]}
    assert told == {record.name: set(record.options) - {"ledger"} for record in METHODS.every()}
    body = {"$ref": "#/components/schemas/Body"}
    for path in ("explain", "predict"):
        posted = schema["paths"][f"/v1/models/{{name}}:{path}"]["post"]
        assert posted["requestBody"]["content"]["application/json"]["schema"] == body
        assert {"400", "401", "404", "408", "413", "415", "422", "503"} <= set(posted["responses"])


@pytest.mark.parametrize("path", ["explain", "render"])
def test_openapi_admits_what_is_answered(live: Live, path: str) -> None:
    schema = live.get("/openapi.json").json
    name = "RenderBody" if path == "render" else "Body"
    whole = {**schema["components"]["schemas"][name], "components": schema["components"]}
    for model, instances in INSTANCES.items():
        jsonschema.validate({"instances": instances}, whole)
        assert live.post(f"/v1/models/{model}:{path}", {"instances": instances[:1]}).status == 200
    good = {"instances": [TEXT], "parameters": {"method": "smoothgrad", "options": {"samples": 2}}}
    jsonschema.validate(good, whole)
    for wrong in ({"method": "no_method"}, {"options": {"samples": "2"}}, {"word": True}, {"target": [1, 2, 3]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"instances": [TEXT], "parameters": wrong}, whole)


@pytest.mark.parametrize("method", METHODS.names())
def test_every_method_answers_with_its_defaults_given(live: Live, method: str) -> None:
    """The options' schema takes the registry's own defaults, and so does the method."""
    small = {"steps": 2, "samples": 2, "max_evals": 40}
    given = {name: small.get(name, METHODS[method].options[name]) for name in option_types(method)}
    answer = live.explain("a movie", model="bert", method=method, options=given)
    assert answer.status == 200, answer.content


def test_whole_numbers_are_bounded() -> None:
    """A new option that multiplies the work is bounded unless it is set free by name."""
    for method in METHODS.names():
        for name, adapter in option_types(method).items():
            shapes = [adapter.json_schema(), *adapter.json_schema().get("anyOf", [])]
            whole = [one for one in shapes if one.get("type") == "integer"]
            assert all(one["maximum"] == OTHER_BOUNDS.get(name, MOST) for one in whole)
    assert set(OTHER_BOUNDS) <= {name for method in METHODS.names() for name in option_types(method)}


def test_options_do_not_collide_with_the_explainers_own_arguments() -> None:
    """They go to it side by side."""
    own = set(Explainer.__call__.__kwdefaults__) - {"ledger"}
    assert not own & {name for method in METHODS.names() for name in METHODS[method].options}
    assert typed_options(["mask_lrp"], {"mask": [[True, False]]})["mask"].shape == (1, 2)


def test_metrics_are_told(live: Live) -> None:
    live.explain(TEXT)
    live.get("/never/heard/of")
    text = live.get("/metrics").content.decode()
    assert 'relprop_requests_total{code="200",route="/v1/models/{name}:explain"}' in text
    assert "relprop_batch_inputs_count" in text
    assert "relprop_queue_inputs 0.0" in text
    assert "never" not in text
