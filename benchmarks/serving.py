"""What the service keeps up with: its rate beside that of a plain loop, many clients, memory, and heavy requests.

    python benchmarks/serving.py [rate] [crowd] [memory] [heavy] [--quick] [--threads 1]

The ceiling is a loop of plain forward and backward passes (frozen parameters, the predicted logit's gradient to the
embedded input) over the same texts, tokenised before, on as many threads as the service has. It batches by length as
many texts at a time as there are clients: no service can sort what has not been sent yet. It runs before and after the
load, in one run, so that a busy machine slows both. The clients are another process, of bare sockets, each of which
sends its next request when it has the answer to the last. Health is asked by a third.

"memory" asks for ledgers. "heavy" sends one heavy request after the other, of every method at the largest size that is
taken, and measures meanwhile how long health takes, and how long a small request of somebody else's; and "held", the
longest that the event loop was held: the processor time of the whole process between two of its ticks, or the time on
the clock where that is less. (On a busy machine health also waits for a processor, which is not the service's doing.)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import socket
import statistics
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from io import BytesIO
from tempfile import TemporaryFile
from typing import Any
from urllib.request import urlopen

from PIL import Image
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

MODEL = "sentiment"
BATCH = 24
HOST = "127.0.0.1"
TICK = 0.005  # seconds between two looks at how long the event loop was held


@dataclass(frozen=True)
class Load:
    """What clients saw: how many answers of each status, and how long those took that were explanations."""

    seconds: float
    statuses: dict[str, int] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds


def texts(count: int, seed: int = 0) -> list[str]:
    """Words of the model's own vocabulary, in sentences as long as those of reviews: 3 to 47, around 20."""
    from relprop.explainer import Explainer

    vocabulary = Explainer(MODEL).tokenizer.get_vocab()
    words = sorted(word for word in vocabulary if re.fullmatch("[a-z]{2,}", word))
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=min(47, max(3, round(draw.gauss(19.5, 9)))))) for _ in range(count)]


def ceiling(given: list[str], seconds: float, together: int) -> tuple[float, float]:
    """Inputs a second of the plain loop, and the seconds of one of its batches."""
    import torch

    from relprop.explainer import Explainer

    explainer = Explainer(MODEL)
    model, reader = explainer.model.requires_grad_(False), explainer.reader
    rows = [reader.read(text) for text in given]
    chunks: list[Any] = [rows[k : k + together] for k in range(0, len(rows), together)]
    batches = [reader.inputs([chunk[i] for i in batch]) for chunk in chunks for batch in reader.batches(chunk, BATCH)]
    times: list[float] = []
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds or len(times) < 3:
        batch, start = batches[len(times) % len(batches)], time.perf_counter()
        embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
        logits = model(**{**batch, "input_ids": None, "inputs_embeds": embedded}).logits
        torch.autograd.grad(logits.max(-1).values.sum(), embedded)
        times.append(time.perf_counter() - start)
        done += len(embedded)
    return done / (time.perf_counter() - began), statistics.mean(times)


class Ticks:
    """Notes how long the event loop is held; the route gives the longest time since it was last asked for."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._running: asyncio.Task[None] | None = None

    async def answer(self, request: Request) -> PlainTextResponse:
        if self._running is None:
            self._running = asyncio.create_task(self._tick())
        longest, self.longest = self.longest, 0.0
        return PlainTextResponse(f"{longest:.6f}")

    async def _tick(self) -> None:
        while True:
            clock, used = time.perf_counter(), time.process_time()
            await asyncio.sleep(TICK)
            self.note(time.perf_counter() - clock, time.process_time() - used)

    def note(self, clock: float, used: float) -> None:
        self.longest = max(self.longest, min(clock, used) - TICK)


def watched(threads: int, seconds: float, models: list[str]) -> None:
    """In this process: the service, with a route that tells how long its event loop was held."""
    from relprop.serve import Limits, application
    from relprop.serve.server import listening_socket, serve_until_signal

    limits = Limits(batch=BATCH, threads=threads, seconds=seconds)
    app = application(models, limits=limits)
    app.router.routes.insert(0, Route("/held", Ticks().answer))
    with listening_socket(HOST, 0) as on:
        print(f"http://{HOST}:{on.getsockname()[1]}/", file=sys.stderr, flush=True)
        serve_until_signal(app, on, limits)


def held(port: int) -> float:
    """The longest time that the event loop was held since the last call."""
    with urlopen(f"http://{HOST}:{port}/held") as answer:
        return float(answer.read())


@contextmanager
def service(threads: int) -> Iterator[int]:
    """`relprop serve` in a process of its own; gives its port, once it is ready."""
    command = [sys.executable, "-c", "from relprop.cli import main; main()", "serve", MODEL, "--port", "0"]
    with running([*command, "--threads", str(threads), "--max-batch", str(BATCH)]) as port:
        yield port


@contextmanager
def running(command: list[str]) -> Iterator[int]:
    """A service in a process of its own, which tells its address first."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        port = int(re.findall(r":(\d+)/", process.stderr.readline())[0])
        while status(port, "/v2/health/ready") != 200:
            time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        if process.wait(60) != 0:
            raise RuntimeError(f"the service ended with {process.returncode}")


def status(port: int, path: str) -> int:
    """One request of its own connection, as a probe makes it."""
    with socket.create_connection((HOST, port), timeout=60) as on:
        on.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while part := on.recv(65536):
            answer += part
    return int(answer[9:12])


def request(text: str, ledger: bool = False) -> bytes:
    body = json.dumps({"instances": [text], "parameters": {"ledger": ledger}}).encode()
    head = f"POST /v1/models/{MODEL}:explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def client(port: int, requests: list[bytes], until: float, seen: Load) -> None:
    """One after the other on one connection; after a refusal it waits a little, as a client should."""
    reader, writer = await asyncio.open_connection(HOST, port)
    number = 0
    while (began := time.perf_counter()) < until:
        writer.write(requests[number % len(requests)])
        number += 1
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.findall(rb"(?i)content-length: (\d+)", head)[0]))
        code = head[9:12].decode()
        seen.statuses[code] = seen.statuses.get(code, 0) + 1
        if code == "200":
            seen.latencies.append(time.perf_counter() - began)
        else:
            await asyncio.sleep(random.uniform(0.1, 0.3))
    writer.close()


def clients(port: int, count: int, seconds: float, given: list[str], ledger: bool = False) -> Load:
    """In this process: so many clients at once."""

    async def all_of_them() -> Load:
        seen, made = Load(seconds), [request(text, ledger) for text in given]
        until = time.perf_counter() + seconds
        await asyncio.gather(*(client(port, made[k % len(made) :] or made, until, seen) for k in range(count)))
        return seen

    return asyncio.run(all_of_them())


class Crowd:
    """Clients in a process of their own, at work. A file takes what they saw: a pipe would be full, and they wait."""

    def __init__(self, port: int, count: int, seconds: float, given: list[str], ledger: bool = False) -> None:
        self._out = TemporaryFile("w+")  # noqa: SIM115 (`result` closes it)
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--clients"], stdin=subprocess.PIPE, stdout=self._out, text=True
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([port, count, seconds, given, ledger]) + "\n")
        self.process.stdin.close()

    def result(self) -> Load:
        if self.process.wait():
            raise RuntimeError("the clients failed")
        with self._out as out:
            out.seek(0)
            return Load(**json.load(out))


def probed(port: int, process: subprocess.Popen[str]) -> list[float]:
    """How long health takes to answer while the clients are at work."""
    times = []
    while process.poll() is None:
        began = time.perf_counter()
        if status(port, "/v2/health/live") != 200:
            raise RuntimeError("the service does not say that it lives")
        times.append(time.perf_counter() - began)
        time.sleep(0.05)
    return times


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def rate(threads: int, seconds: float, count: int = 64) -> dict[str, float]:
    """64 clients beside the plain loop."""
    given = texts(512)
    with service(threads) as port:
        Crowd(port, count, seconds / 5, given).result()  # warm
        before = ceiling(given, seconds / 2, count)
        seen = Crowd(port, count, seconds, given).result()
        after = ceiling(given, seconds / 2, count)
    most, batch = (statistics.mean(pair) for pair in zip(before, after, strict=True))
    p99 = percentile(seen.latencies, 0.99)
    return {
        "ceiling, inputs a second": most,
        "service, inputs a second": seen.rate,
        "share of the ceiling": seen.rate / most,
        "p99, s": p99,
        "p99 in batch times": p99 / batch,
    }


def crowd(threads: int, seconds: float, count: int = 400) -> dict[str, Any]:
    """400 clients, and health all the while."""
    with service(threads) as port:
        clients = Crowd(port, count, seconds, texts(512))
        alive = probed(port, clients.process)
        seen = clients.result()
    return {
        "statuses": dict(Counter(seen.statuses)),
        "explained a second": seen.rate,
        "p99, s": percentile(seen.latencies, 0.99),
        "health p50, s": percentile(alive, 0.5),
        "health p99, s": percentile(alive, 0.99),
        "health max, s": max(alive),
    }


def memory(threads: int, explanations: int) -> dict[str, float]:
    """Resident memory after a tenth of the explanations, as warm-up, and after all."""
    with service(threads) as port:
        done, grown, given = 0, [], texts(512)
        while done < explanations:
            done += len(Crowd(port, 16, 5.0, given, ledger=True).result().latencies)
            time.sleep(1.5)  # then it has given back what it freed
            grown.append((done, resident(port)))
    warm = next(size for count, size in grown if count >= explanations / 10)
    return {
        "explanations": done,
        "warm, MB": warm / 1e6,
        "end, MB": grown[-1][1] / 1e6,
        "growth": grown[-1][1] / warm - 1,
    }


def resident(port: int) -> float:
    """Bytes, as the service itself tells them."""
    with urlopen(f"http://{HOST}:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("process_resident_memory_bytes ")))


@dataclass(frozen=True)
class Heavy:
    """A request that could hold others."""

    name: str
    path: str
    body: dict[str, Any]


def heavy_requests() -> list[Heavy]:
    """Requests at the limits, or beyond them: pictures, molecules, and every method with long texts."""
    from relprop.registry import METHODS
    from relprop.serve import Limits
    from relprop.serve.body import ExplainRequest
    from relprop.serve.instances import atoms_and_bonds

    limits, long = Limits(), "a gorgeous movie " * 588  # 10,000 characters, of which the model reads 256 tokens
    branched = "C(C)" * (limits.atoms // 2 - 1) + "CC"
    net = _net(27)
    assert atoms_and_bonds(branched)[0] == limits.atoms
    assert atoms_and_bonds(net)[1] <= limits.bonds
    found = [
        Heavy("2,500 carbon atoms", "molecules:explain", {"instances": ["C" * 2_500]}),
        Heavy("64 molecules of 256 atoms", "molecules:explain", {"instances": [branched] * 64}),
        Heavy("16 drawings of 256 atoms", "molecules:render", {"instances": [branched] * 16, "format": "png"}),
        Heavy("16 nets of rings", "molecules:explain", {"instances": [net] * 16}),
        Heavy("64 pictures of 2,048 x 2,048", "pets:explain", {"instances": [_picture(2_048)] * 64}),
        Heavy("64 superpixels of 512 x 512", "superpixels:explain", {"instances": [_picture(512)] * 64}),
        Heavy("a bomb of 20,000 x 20,000", "pets:explain", {"instances": [_picture(20_000)]}),
    ]
    largest = {"steps": 1_000, "samples": 1_000}
    for name in METHODS.names():
        options = {key: value for key, value in largest.items() if key in METHODS[name].options}
        parameters = {"method": name, "options": options}
        each = ExplainRequest((name,), options=json.dumps(options)).passes(256) * 256 * 2  # blocks
        count = max(1, min(limits.explanations, limits.work // each))
        found.append(Heavy(f"{name} of {count} long texts", f"{MODEL}:explain", _asked([long] * count, parameters)))
    return found


def _asked(instances: list[str], parameters: dict[str, Any]) -> dict[str, Any]:
    return {"instances": instances, "parameters": parameters}


def _net(atoms: int) -> str:
    """A SMILES in which every atom is bound to every other."""
    from rdkit import Chem

    molecule = Chem.RWMol()
    for _ in range(atoms):
        molecule.AddAtom(Chem.Atom(0))
    for a in range(atoms):
        for b in range(a):
            molecule.AddBond(a, b, Chem.BondType.SINGLE)
    return str(Chem.MolToSmiles(molecule, canonical=False))


def _picture(side: int) -> dict[str, str]:
    """One that is small as a file."""
    file = BytesIO()
    Image.new("1", (side, side)).save(file, "PNG")
    return {"b64": b64encode(file.getvalue()).decode()}


def posted(port: int, path: str, body: dict[str, Any]) -> tuple[int, float]:
    """The status, and the seconds that it took."""
    connection, began = HTTPConnection(HOST, port, timeout=600), time.perf_counter()
    connection.request("POST", f"/v1/models/{path}", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, time.perf_counter() - began


def heavy(threads: int, seconds: float) -> dict[str, Any]:
    """Each heavy request alone, with health and a small request beside it."""
    found: dict[str, Any] = {}
    names = (MODEL, "pets", "molecules", "superpixels")
    small = ("sentiment:explain", {"instances": ["a movie"], "parameters": {"method": "gradient_x_input"}})
    command = [sys.executable, __file__, "--watched", json.dumps([threads, seconds, names])]
    with running(command) as port, ThreadPoolExecutor(2) as pool:
        for one in heavy_requests():
            held(port)
            asked = pool.submit(posted, port, one.path, one.body)
            time.sleep(0.3)
            beside, alive = pool.submit(posted, port, *small), []
            while not (asked.done() and beside.done()):
                began = time.perf_counter()
                status(port, "/v2/health/live")
                alive.append(time.perf_counter() - began)
                time.sleep(0.05)
            (code, took), (other, waited) = asked.result(), beside.result()
            health = f"health {max(alive, default=0.0):.2f} s, held {held(port):.3f} s"
            found[one.name] = f"{code} in {took:5.1f} s; beside it {other} in {waited:5.1f} s, {health}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["rate", "crowd", "memory", "heavy"])
    parser.add_argument("--quick", action="store_true", help="a tenth of the time: to try it, not to measure")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clients", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--watched", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.watched:
        watched(*json.loads(given.watched))
        return
    if given.clients:
        print(json.dumps(vars(clients(*json.loads(sys.stdin.readline())))))
        return
    import torch

    torch.set_num_threads(given.threads)
    scale = 0.1 if given.quick else 1.0
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "rate": lambda: rate(given.threads, 60 * scale),
        "crowd": lambda: crowd(given.threads, 120 * scale),
        "memory": lambda: memory(given.threads, int(20_000 * scale)),
        "heavy": lambda: heavy(given.threads, 10 if given.quick else 30),
    }
    for part in given.parts:
        print(part)
        for name, value in work[part]().items():
            print(f"  {name:<40} {value:.3f}" if isinstance(value, float) else f"  {name:<40} {value}", flush=True)


if __name__ == "__main__":
    main()
