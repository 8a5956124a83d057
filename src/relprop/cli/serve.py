"""`relprop serve`: models as a service, on this machine alone unless told otherwise."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from relprop.errors import RelpropError


def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Embedded models, folders or hub ids; NAME=MODEL names one."),
    ],
    host: Annotated[str, typer.Option(help="The address to listen on. Default: this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8080,
    token: Annotated[
        str | None, typer.Option(envvar="RELPROP_TOKEN", help="Requests must carry it as a bearer token.")
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Inputs explained together.")] = 24,
    queue: Annotated[int, typer.Option(min=1, help="Inputs that may wait; more are refused with 503.")] = 256,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds until a request is given up.")] = 30.0,
    threads: Annotated[int | None, typer.Option(min=1, help="Of torch. Default: its own choice.")] = None,
) -> None:
    """Serve models: REST as KServe has it (V1), and a page. Needs the extra "serve"."""
    if not all(map(find_spec, ("fastapi", "httptools", "prometheus_client", "uvicorn"))):
        raise RelpropError('the service needs more packages: pip install "relprop[serve]"')
    from relprop.serve.app import application
    from relprop.serve.guard import own_names
    from relprop.serve.limits import Limits
    from relprop.serve.server import listen, run
    from relprop.serve.service import named

    limits = Limits(batch=max_batch, queue=queue, seconds=timeout, threads=threads)
    app = application(named(models), limits=limits, token=token or None, hosts=own_names(host))
    with listen(host, port) as socket:
        shown = f"[{host}]" if ":" in host else host
        typer.echo(f"relprop: http://{shown}:{socket.getsockname()[1]}/ serves {', '.join(named(models))}", err=True)
        run(app, socket, limits)
    raise typer.Exit
