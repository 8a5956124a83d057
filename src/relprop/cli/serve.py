"""`relprop serve`: models as a service, by default for this machine only."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from relprop.errors import RelpropError

LIMITS = "Limits of one request (more is refused before any work)"


def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Embedded models, folders or hub ids; NAME=MODEL gives one a name."),
    ],
    host: Annotated[str, typer.Option(help="The address to listen on. Default: this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8080,
    token: Annotated[
        str | None, typer.Option(envvar="RELPROP_TOKEN", help="Requests must carry it as a bearer token.")
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Inputs explained together.")] = 24,
    queue: Annotated[int, typer.Option(min=1, help="Inputs that may wait; more are refused with 503.")] = 256,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which a request is refused.")] = 30.0,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch. Default: its own choice.")] = None,
    max_bytes: Annotated[int, typer.Option(min=1, help="Bytes.", rich_help_panel=LIMITS)] = 8_000_000,
    max_explanations: Annotated[int, typer.Option(min=1, help="Inputs x methods.", rich_help_panel=LIMITS)] = 64,
    max_drawings: Annotated[
        int, typer.Option(min=1, help="Inputs x methods, where a file is asked for.", rich_help_panel=LIMITS)
    ] = 16,
    max_characters: Annotated[int, typer.Option(min=1, help="Of each text.", rich_help_panel=LIMITS)] = 10_000,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of each text.", rich_help_panel=LIMITS)] = 2_048,
    max_pixels: Annotated[int, typer.Option(min=1, help="Of each picture.", rich_help_panel=LIMITS)] = 4_194_304,
    max_region_pixels: Annotated[
        int, typer.Option(min=1, help="Of each picture that is cut into superpixels.", rich_help_panel=LIMITS)
    ] = 262_144,
    max_sound: Annotated[float, typer.Option(min=0.1, help="Seconds of each sound.", rich_help_panel=LIMITS)] = 60.0,
    max_numbers: Annotated[
        int, typer.Option(min=1, help="Of each series or row of a table.", rich_help_panel=LIMITS)
    ] = 100_000,
    max_atoms: Annotated[int, typer.Option(min=1, help="Of each molecule.", rich_help_panel=LIMITS)] = 256,
    max_bonds: Annotated[int, typer.Option(min=1, help="Of each molecule.", rich_help_panel=LIMITS)] = 384,
    max_work: Annotated[
        int,
        typer.Option(min=1, help="Passes (steps, samples, hidden units) x units x blocks.", rich_help_panel=LIMITS),
    ] = 10_000_000,
) -> None:
    """Serve models: KServe's REST protocol (V1), and a page. Needs the extra "serve"."""
    if not all(map(find_spec, ("fastapi", "httptools", "prometheus_client", "uvicorn"))):
        raise RelpropError('the service needs more packages: pip install "relprop[serve]"')
    from relprop.serve.app import application
    from relprop.serve.guard import loopback_names
    from relprop.serve.limits import Limits
    from relprop.serve.server import listening_socket, serve_until_signal
    from relprop.serve.service import models_by_name

    limits = Limits(
        batch=max_batch,
        queue=queue,
        seconds=timeout,
        threads=threads,
        body=max_bytes,
        explanations=max_explanations,
        drawings=max_drawings,
        characters=max_characters,
        tokens=max_tokens,
        pixels=max_pixels,
        region_pixels=max_region_pixels,
        sound=max_sound,
        numbers=max_numbers,
        atoms=max_atoms,
        bonds=max_bonds,
        work=max_work,
    )
    app = application(models_by_name(models), limits=limits, token=token or None, hosts=loopback_names(host))
    with listening_socket(host, port) as socket:
        shown = f"[{host}]" if ":" in host else host
        typer.echo(
            f"relprop: http://{shown}:{socket.getsockname()[1]}/ serves {', '.join(models_by_name(models))}", err=True
        )
        serve_until_signal(app, socket, limits)
    raise typer.Exit
