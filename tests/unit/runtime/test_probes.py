import pytest

from navarchos.errors import AlreadyStarted, ConfigError
from navarchos.runtime.endpoints import Probes
from navarchos.runtime.httpserver import HttpResponse


def fine() -> None:
    pass


def broken() -> None:
    raise RuntimeError("the disk of db-7 is full")


def ask(probes: Probes, path: str, **query: list[str]) -> tuple[int, str]:
    answer: HttpResponse = probes.route(path, query)
    return answer.status, answer.body.decode()


@pytest.fixture
def probes() -> Probes:
    return Probes()


@pytest.mark.rule("MG-14")
def test_without_checks_there_is_a_ping(probes: Probes) -> None:
    assert ask(probes, "/healthz") == (200, "ok")
    assert ask(probes, "/healthz/ping") == (200, "ok")
    assert ask(probes, "/readyz", verbose=[""]) == (200, "[+]ping ok\nreadyz check passed\n")


@pytest.mark.rule("MG-14")
def test_a_failure_is_verbose_but_keeps_its_reason_to_itself(probes: Probes) -> None:
    probes.healthz.add("disk", broken)
    probes.healthz.add("cpu", fine)
    assert ask(probes, "/healthz") == (
        500,
        "[+]cpu ok\n[-]disk failed: reason withheld\nhealthz check failed\n",
    )
    assert ask(probes, "/readyz") == (200, "ok")


@pytest.mark.rule("MG-14")
def test_a_single_check_shows_its_reason(probes: Probes) -> None:
    probes.healthz.add("disk", broken)
    probes.healthz.add("cpu", fine)
    assert ask(probes, "/healthz/disk") == (500, "the disk of db-7 is full\n")
    assert ask(probes, "/healthz/cpu/") == (200, "ok")
    assert ask(probes, "/healthz/other")[0] == 404


@pytest.mark.rule("MG-14")
def test_checks_can_be_excluded_and_unknown_names_are_only_warned_of(probes: Probes) -> None:
    probes.healthz.add("disk", broken)
    assert ask(probes, "/healthz", exclude=["disk", "nothing"]) == (200, "ok")
    status, text = ask(probes, "/healthz", exclude=["disk", "nothing"], verbose=[""])
    assert status == 200
    assert "[+]disk excluded: ok" in text
    assert "warn: some health checks cannot be excluded: no matches for nothing" in text


@pytest.mark.rule("MG-14")
@pytest.mark.parametrize("path", ["/", "/health", "/healthzz", "/metrics"])
def test_other_paths_are_not_found(probes: Probes, path: str) -> None:
    assert ask(probes, path)[0] == 404


@pytest.mark.rule("MG-14")
def test_checks_have_names_of_their_own_and_come_before_the_start(probes: Probes) -> None:
    probes.healthz.add("disk", fine)
    with pytest.raises(ConfigError, match="another check has this name"):
        probes.healthz.add("disk", fine)
    probes.healthz.freeze()
    with pytest.raises(AlreadyStarted):
        probes.healthz.add("cpu", fine)
