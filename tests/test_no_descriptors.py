"""A node that may open no more files: who asks for some is refused, and all others go on."""

import http.client
import json
import resource
from contextlib import closing
from pathlib import Path

from headrace.native import build_batch
from kafkaraw import RawConnection


def test_a_stream_that_cannot_be_made_leaves_nothing_and_ends_nothing(start_node):
    node = start_node()
    node.create_stream("old", partitions=1)
    pid = node.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    door = http.client.HTTPConnection("127.0.0.1", node.http, timeout=60)

    def asked(method, path, body=None):
        door.request(method, path, json.dumps(body) if body else None)
        answer = door.getresponse()
        return answer.status, json.loads(answer.read() or b"null")

    with closing(door), RawConnection(node) as raw:
        assert raw.produce("old", build_batch([(b"k", b"before", [], 1)])).error_code == 0
        assert asked("GET", "/api/v1/streams")[0] == 200
        used = max(int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()) + 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, before[1]))
        try:
            for _ in range(2):
                status, why = asked("POST", "/api/v1/streams", {"name": "new", "partitions": 2})
                assert (status, "ulimit -n" in why["detail"]) == (503, True), why
            assert raw.produce("old", build_batch([(b"k", b"meanwhile", [], 1)])).error_code == 0
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert asked("POST", "/api/v1/streams", {"name": "new", "partitions": 2})[0] in {200, 201}
        assert raw.produce("new", build_batch([(b"k", b"after", [], 1)])).error_code == 0
    node.kill()
    node = start_node.again(node)
    assert (node.ends("old"), sum(node.ends("new"))) == ([2], 1)
