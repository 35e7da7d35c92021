"""headrace.Consumer asks for the next records while its program works on those that came."""

import pytest

import headrace
from conftest import wait_for
from kafkaraw import RawConnection, batch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(shared):
    return shared


async def test_the_next_fetch_is_under_way_before_the_program_has_what_came(node, stream):
    def fetches():
        return node.metrics().get('headrace_kafka_requests_total{request="Fetch"}', 0)

    with RawConnection(node) as raw:
        assert raw.produce(stream, batch(b"a")).error_code == 0
    before = fetches()
    settings = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 10_000}
    async with headrace.Consumer(node.servers, stream, **settings) as consumer:
        assert (await consumer.getone()).value == b"a"
        wait_for(lambda: fetches() >= before + 2)  # the consumer's loop stands still
