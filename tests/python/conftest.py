import faulthandler
import signal
from collections.abc import Iterator

import pytest
from support.ranks import RankPools

_test_limit_seconds = 120

# A shell that runs the tests in the background has Ctrl-C ignored, and every process that a test
# starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """No test runs for ever, whatever it waits for."""
    faulthandler.dump_traceback_later(_test_limit_seconds, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module that says `with_worker_threads = True` runs its tests with and without them."""
    if "pools" in metafunc.fixturenames and getattr(metafunc.module, "with_worker_threads", False):
        metafunc.parametrize(
            "pools", [False, True], indirect=True, ids=["", "worker_threads"], scope="session"
        )


@pytest.fixture(scope="session")
def pools(request: pytest.FixtureRequest) -> Iterator[RankPools]:
    """Ranks that live as long as the test session, by world size."""
    pools = RankPools(getattr(request, "param", False))
    yield pools
    pools.close()
