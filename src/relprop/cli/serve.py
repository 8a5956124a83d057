"""`relprop serve`: models as a service, by default for this machine only."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from relprop.errors import RelpropError


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
) -> None:
    """Serve models: KServe's REST protocol (V1), and a page. Needs the extra "serve"."""
    if not all(map(find_spec, ("fastapi", "httptools", "prometheus_client", "uvicorn"))):
        raise RelpropError('the service needs more packages: pip install "relprop[serve]"')
    from relprop.serve.app import application
    from relprop.serve.guard import loopback_names
    from relprop.serve.limits import Limits
    from relprop.serve.server import listening_socket, serve_until_signal
    from relprop.serve.service import models_by_name

    limits = Limits(batch=max_batch, queue=queue, seconds=timeout, threads=threads)
    app = application(models_by_name(models), limits=limits, token=token or None, hosts=loopback_names(host))
    with listening_socket(host, port) as socket:
        shown = f"[{host}]" if ":" in host else host
        typer.echo(
            f"relprop: http://{shown}:{socket.getsockname()[1]}/ serves {', '.join(models_by_name(models))}", err=True
        )
        serve_until_signal(app, socket, limits)
    raise typer.Exit
