import faulthandler
from collections.abc import Iterator

import pytest
from support.ranks import RankPools

_test_limit_seconds = 120


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """No test runs for ever, whatever it waits for."""
    faulthandler.dump_traceback_later(_test_limit_seconds, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def pools() -> Iterator[RankPools]:
    """Ranks that live as long as the test session, by world size."""
    pools = RankPools()
    yield pools
    pools.close()
