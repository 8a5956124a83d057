"""How large a request may be and how long it may take; what exceeds a limit is refused with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from relprop.errors import InputError, RelpropError


@dataclass(frozen=True)
class Limits:
    """The limits of one service. Too large requests are refused before any work, too slow ones are stopped."""

    batch: int = 24  # inputs explained together
    linger: float = 0.004  # seconds that the first input of a batch waits for others
    beside: float = 0.5  # seconds of one batch after which small requests are explained beside it
    queue: int = 256  # inputs that wait, are explained, or whose answer is being written
    seconds: float = 30.0  # from a request's arrival to its answer
    receiving: float = 10.0  # seconds in which a request must arrive completely
    body: int = 8_000_000  # bytes
    explanations: int = 64  # inputs x methods of one request
    drawings: int = 16  # inputs x methods of one request for a file
    characters: int = 10_000  # of one text
    tokens: int = 2_048  # of one text
    pixels: int = 4_194_304  # of one picture
    region_pixels: int = 262_144  # of one picture that is cut into superpixels, which takes longer
    sound: float = 60.0  # seconds of one sound
    numbers: int = 100_000  # of one series or row
    atoms: int = 256  # of one molecule
    bonds: int = 384  # of one molecule: rdkit takes seconds for a net of rings
    work: int = 10_000_000  # passes x units x blocks of one request
    threads: int | None = None  # of torch; None leaves torch's default

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and (value < 0 or (value == 0 and name != "linger")):
                raise InputError(f"{name} must be more than 0, got {value}")


class RefusedError(RelpropError):
    """A request that is not answered: the status, the reason, and after how many seconds to try again."""

    def __init__(self, status: int, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers: dict[str, str] = {} if retry_after is None else {"Retry-After": str(retry_after)}


def too_large(reason: str) -> RefusedError:
    return RefusedError(413, reason)


def numbered(error: RelpropError, number: int) -> RelpropError:
    """The error, with the number of the instance that it is about."""
    error.args = (f"instance {number}: {error}",)
    return error
