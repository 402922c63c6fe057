import pytest

from navarchos.drain import DrainOptions
from navarchos.errors import ConfigError


@pytest.mark.parametrize(
    "options",
    [
        {"grace_period_seconds": -2},
        {"timeout": 0},
        {"eviction_retry": 0},
        {"skip_wait_for_delete_timeout": -1},
    ],
)
def test_invalid_options_are_refused_by_name(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as error:
        DrainOptions(**options)  # type: ignore[arg-type]  # the point of the test
    assert error.value.name in options


def test_the_pods_own_grace_period_is_the_default() -> None:
    assert DrainOptions().grace is None
    assert DrainOptions(grace_period_seconds=0).grace == 0
