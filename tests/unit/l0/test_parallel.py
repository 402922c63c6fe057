import threading
from collections import Counter

import pytest

from navarchos.parallel import parallelize
from navarchos.stopping import StopToken


@pytest.mark.rule("WQ-34")
@pytest.mark.parametrize("pieces", [0, 1, 10, 1_000])
@pytest.mark.parametrize("workers", [1, 3, 50])
@pytest.mark.parametrize("chunk", [1, 7, 1_000])
def test_every_piece_is_processed_once(pieces: int, workers: int, chunk: int) -> None:
    done = Counter[int]()
    lock = threading.Lock()

    def work(piece: int) -> None:
        with lock:
            done[piece] += 1

    parallelize(range(pieces), work, workers=workers, chunk=chunk, stop=StopToken())
    assert done == Counter(range(pieces))


@pytest.mark.rule("WQ-34")
def test_pieces_are_processed_concurrently_by_at_most_one_thread_per_chunk() -> None:
    together = threading.Barrier(3)
    names: set[str] = set()

    def work(_: int) -> None:
        names.add(threading.current_thread().name)
        together.wait(10)

    parallelize(range(3), work, workers=50, stop=StopToken())
    assert len(names) == 3
    names.clear()
    parallelize(
        range(6),
        lambda _: names.add(threading.current_thread().name),
        workers=50,
        chunk=6,
        stop=StopToken(),
    )
    assert len(names) == 1


@pytest.mark.rule("WQ-34")
@pytest.mark.parametrize("chunk", [1, 100])
def test_after_a_stop_no_further_piece_is_started(chunk: int) -> None:
    stop = StopToken()
    done: list[int] = []

    def work(piece: int) -> None:
        done.append(piece)
        if piece == 3:
            stop.stop()

    parallelize(range(100), work, workers=1, chunk=chunk, stop=stop)
    assert done == [0, 1, 2, 3]


def test_after_a_failure_no_further_piece_is_started_and_it_is_raised() -> None:
    done: list[int] = []
    stop = StopToken()

    def work(piece: int) -> None:
        done.append(piece)
        if piece == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        parallelize(range(100), work, workers=1, stop=stop)
    assert done == [0, 1, 2, 3]
    assert not stop.is_set()
