"""Whatever is sent, the service does not break: its fault (5xx) is never the answer to a request's own nonsense."""

from __future__ import annotations

import http.client
import json
import random
import string
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from relprop.explainer import Explainer
from relprop.registry import METHODS
from relprop.serve.options import option_types
from serving_for_tests import HANG, Live, patient, serving
from test_features import COLUMNS, ROW
from test_features import model as row_model
from test_image_text_interfaces import b64
from test_images import vit
from test_series import patches, walk
from test_serve import INSTANCES, graphormer
from test_serve_numbers import encoded, table
from test_serve_tasks import CHAT, CHOICES, PAIR, TEXT, explainers
from test_sounds import LOW, tone
from test_sounds import explainer as sounds
from tokenizers_for_tests import tiny
from vision_language_models import model_and_processor, picture

NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 7, 2**31, 2**63, 2**70, 10**400, -0.0, 0.5, 1e308, float("nan"), float("inf"), "", " ",
    "\x00", "\ufeff", "\u202e", "a\u0300" * 20, "日本語", "🎬" * 30, "\ud800", "[MASK]", "[CLS] [SEP]",
    "<script>", "../../etc",
    "%s%n", "positive", "start", "end", "C" * 300, "[" * 50, "both", "random", "x" * 11_000, "a " * 300,
    [], {}, [[]], [None], ["a"], ["a", "b"], ["a", "b", "c"], [1, 0], [[True] * 4] * 2, [[1, 2], [3]],
    {"text": 1}, {"b64": ""}, {"b64": "iVBORw0KGgo="}, {"image": {"b64": None}}, {"text": "a", "pair": "b"},
    {"a": {"b": {"c": []}}}, {"words": ["a", ""]}, {"words": [[]]}, {"text": "a", "choices": ["b", 3]},
    {"messages": [{"role": "user"}]}, {"messages": [{"role": "x", "content": "y"}] * 3}, {"messages": [{}]},
    {"audio": {"b64": "UklGRg=="}}, {"image": {"b64": "iVBORw0KGgo="}, "text": "a"}, {"csv": "a,b\n1,x"},
    {"past_values": [[1, 2], [3]]}, {"past_values": [[[]]]}, {"past_values": [[None, "x"]]}, {"row": {"age": "x"}},
]  # fmt: skip
# Of models of every other kind.
OTHERS: dict[str, list[Any]] = {
    "encoder": [list(PAIR), {"text": PAIR[0], "pair": PAIR[1]}],
    "chooser": [{"text": TEXT, "choices": CHOICES}] * 2,
    "chat": [{"messages": CHAT}, "the movie"],
    "masks": ["a [MASK] movie with [MASK]", {"words": ["a", "[MASK]"]}],
    "several": ["a dull movie", {"words": ["a", "movie"]}],
    "tagger": ["a dull movie", {"words": ["a", "New York"]}],
    "number": ["a dull movie"] * 2,
    "clip": [{"image": {"b64": b64(picture())}, "text": one} for one in ("a red photo", ["a red photo", "a cat"])],
    "sounds": [{"b64": encoded(tone(0.3, LOW))}, {"audio": {"b64": encoded(tone(0.2, LOW))}}],
    "series": [{"csv": table(walk(), ["temp", "wind", "rain"])}, {"past_values": walk().tolist()}],
    "rows": [{"row": ROW}, {"csv": "age,income,height,debt\n0.3,-1.2,0.5,2.0"}],
}
PATHS = [
    "/", "//", "/v1", "/v1/models/", "/v1/models/%00", "/v1/models/..%2f..%2fetc:explain", "/v1/models/bert:",
    "/metrics",
    "/v1/models/bert:explain/x", "/v1/models/bert%3Aexplain", "/v2/models/" + "a" * 3000 + "/ready", "/openapi.json",
    "/é?ü=1",
    "/v1/methods?x=" + "y" * 2000, "/../../../etc/passwd", "/index.html", "/v2/health/ready?verbose=1",
]  # fmt: skip
TYPES = [
    "application/json",
    "application/json; charset=utf-16",
    "text/plain",
    "",
    "multipart/form-data; boundary=x",
    "é",
]
SMALL = {"steps": 3, "samples": 2, "max_evals": 60}


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    models = {name: Explainer(*tiny(name)) for name in ("bert", "qa", "lm")}
    limits = patient(body=200_000)
    with serving({**models, "vit": vit(), "graphs": graphormer()}, limits=limits) as live:
        live.wait()
        yield live


@pytest.fixture(scope="module")
def others() -> Iterator[Live]:
    models = {name: one for name, one in explainers().items() if name in OTHERS}
    series = patches("Prediction", prediction_length=5, loss="mse")
    models |= {"clip": Explainer(*model_and_processor("clip")), "sounds": sounds("samples"), "series": series}
    models["rows"] = Explainer(row_model(), columns=COLUMNS)
    with serving(models, limits=patient(body=200_000)) as live:
        live.wait()
        yield live


class Fuzz:
    """Requests that are almost right, or not at all. The same seed makes the same."""

    def __init__(self, seed: int, instances: dict[str, list[Any]]) -> None:
        self.draw, self.instances = random.Random(seed), instances

    def request(self) -> tuple[str, str, bytes | None, dict[str, str]]:
        draw = self.draw
        kind = draw.random()
        if kind < 0.1:
            return (
                draw.choice(["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "POST"]),
                quoted(draw.choice(PATHS)),
                None,
                {},
            )
        known = list(self.instances)
        model = draw.choice([*known, "nobody"]) if kind < 0.2 else draw.choice(known)
        action = draw.choice(["explain"] * 14 + ["predict", "predict", "render", "nothing"])
        body: Any = self.body(model if model in known else known[0], action)
        for _ in range(draw.choice([0, 1, 1, 1, 2, 4])):
            body = self.changed(body)
        content = json.dumps(body).encode()
        if draw.random() < 0.15:
            content = self.damaged(content)
        sent = draw.choice(TYPES) if draw.random() < 0.1 else TYPES[0]
        return "POST", f"/v1/models/{model}:{action}", content, {"Content-Type": sent}

    def body(self, model: str, action: str) -> dict[str, Any]:
        """One that is right."""
        draw = self.draw
        method = draw.choice(METHODS.names())
        known = METHODS[method].options
        options = {
            name: SMALL.get(name, known[name]) for name in option_types(method) if draw.random() < 0.5 or name in SMALL
        }
        parameters: dict[str, Any] = {
            "method": method,
            "options": options,
            "target": draw.choice([None, 0, "1", [0, 1]]),
        }
        parameters |= {name: draw.random() < 0.2 for name in ("words", "ledger")}
        parameters["special"] = draw.choice(["keep", "drop"])
        if draw.random() < 0.2:
            name, value = draw.choice([("labels", [0, "insult"]), ("generate", 2), ("target", ["movie", 1])])
            parameters |= {"target": None, name: value}
        body: dict[str, Any] = {
            "instances": draw.sample(self.instances[model], draw.choice([1, 2])),
            "parameters": parameters,
        }
        return {**body, "format": draw.choice(["html", "json"])} if action == "render" else body

    def changed(self, tree: Any, depth: int = 0) -> Any:
        """Somewhere in it something else, seldom near the root."""
        draw = self.draw
        if draw.random() < 0.1 * depth or not isinstance(tree, dict | list) or not tree:
            return draw.choice(NASTY)
        if isinstance(tree, list):
            place = draw.randrange(len(tree))
            return [*tree[:place], self.changed(tree[place], depth + 1), *tree[place + 1 :]]
        name = draw.choice(list(tree))
        if draw.random() < 0.05 * depth:
            return {key: value for key, value in tree.items() if key != name}
        if draw.random() < 0.05 * depth:
            return {
                **tree,
                draw.choice(["", "x", "mask", "steps", "seed", "generate", "batch_size"]): draw.choice(NASTY),
            }
        return {**tree, name: self.changed(tree[name], depth + 1)}

    def damaged(self, content: bytes) -> bytes:
        draw = self.draw
        place = draw.randrange(len(content))
        noise = bytes(draw.randrange(256) for _ in range(draw.choice([1, 4])))
        return draw.choice(
            [content[:place], content[:place] + noise + content[place + 1 :], content + noise, b"[" * 3000, b""]
        )


def quoted(path: str) -> str:
    """As a careless client sends it: what is no ASCII in bytes of UTF-8."""
    return "".join(one if one in string.printable else "".join(f"%{byte:02x}" for byte in one.encode()) for one in path)


def unbroken(live: Live, count: int, seed: int, instances: dict[str, list[Any]] = INSTANCES) -> Counter[int]:
    fuzz, seen = Fuzz(seed, instances), Counter[int]()
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=HANG)
    for _ in range(count):
        method, path, content, headers = fuzz.request()
        connection.request(method, path, content, {name: value.encode() for name, value in headers.items()})
        answer = connection.getresponse()
        told = answer.read()
        assert answer.status < 500, (method, path, content, told)
        if answer.status >= 400 and method != "HEAD":
            assert json.loads(told)["error"], (method, path, content, told)
        seen[answer.status] += 1
    connection.close()
    return seen


def test_a_slice_of_nonsense(live: Live) -> None:
    """And not all of it is refused for the same reason."""
    seen = unbroken(live, 200, seed=0)
    assert seen[200] > 12
    assert seen[400] > 40
    assert {404, 422} <= set(seen)


@pytest.mark.filterwarnings("ignore::relprop.errors.RelpropWarning")  # which a service writes to its log
def test_a_slice_of_nonsense_for_models_of_other_kinds(others: Live) -> None:
    """Pairs to compare, choices, chats, several labels, pictures with texts, sounds, series and rows."""
    seen = unbroken(others, 200, seed=2, instances=OTHERS)
    assert seen[200] > 12
    assert seen[400] > 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::relprop.errors.RelpropWarning")
def test_much_nonsense(live: Live, others: Live) -> None:
    unbroken(live, 7_000, seed=1)
    unbroken(others, 7_000, seed=3, instances=OTHERS)


@pytest.mark.slow
def test_what_schemathesis_makes_of_the_schema(live: Live) -> None:
    """3,000 requests from the OpenAPI description, as it admits them."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings

    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{live.port}/openapi.json")
    seen = Counter[int]()
    for one in schema.get_all_operations():
        operation = one.ok()
        examples = 900 if operation.method == "post" else 150

        @settings(
            max_examples=examples, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(operation.as_strategy())
        def check(case: Any) -> None:
            if case.path_parameters:
                case.path_parameters["name"] = "bert"
            answer = case.call()
            seen[answer.status_code] += 1
            assert answer.status_code < 500, case.as_curl_command()

        check()
    assert seen.total() >= 3_000
    assert {200, 400} <= set(seen)
