"""Types are prepared once, by one thread; otherwise the process may die."""

import subprocess
import sys

import msgspec
import pytest

from navarchos.structs import prepare_decoding

# Nested structs: Python code runs while the layout of the outer struct is incomplete.
RACE = """
import sys, threading, msgspec
from navarchos.structs import make_decoder, prepare_decoding

sys.setswitchinterval(1e-6)
for _ in range(60):
    inner = [msgspec.defstruct(f"I{n}", [("x", "int | None", None)]) for n in range(10)]
    fields = [(f"f{n}", tuple[each, ...], ()) for n, each in enumerate(inner)]
    outer = msgspec.defstruct("O", fields)
    raw = msgspec.json.encode({f"f{n}": [{"x": 1}] for n in range(10)})
    start = threading.Barrier(4)

    def decode():
        start.wait()
        decode_outer = DECODE
        assert decode_outer(raw).f9[0].x == 1

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("survived")
"""
OURS = "make_decoder(outer).decode"


def test_threads_that_decode_a_struct_for_the_first_time_at_once_survive() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RACE.replace("DECODE", OURS)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "survived\n"), done.stderr


def test_a_prepared_struct_survives_the_first_decoding_by_several_threads() -> None:
    """The decorator prepares a struct for `msgspec.json.decode` with a type."""
    prepared = "(lambda raw, kind=prepare_decoding(outer): msgspec.json.decode(raw, type=kind))"
    done = subprocess.run(
        [sys.executable, "-c", RACE.replace("DECODE", prepared)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "survived\n"), done.stderr


def test_a_struct_with_an_unknown_type_fails_where_it_is_defined() -> None:
    class Thing(msgspec.Struct):
        size: "NoSuchType"  # type: ignore[name-defined]  # noqa: F821 - on purpose

    with pytest.raises(NameError, match="NoSuchType"):
        prepare_decoding(Thing)
