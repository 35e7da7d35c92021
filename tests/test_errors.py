"""The exception tree is what the head of `headrace.errors` draws."""

import copy
import pickle
import re

import pytest

from headrace import errors

DRAWN = re.compile(r"^(?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+)(?P<rest>.*)$", re.MULTILINE)


def drawn():
    """`(name, parent, rest of the line)` of each class that the tree shows as defined there."""
    tree = errors.__doc__.split("```")[1]
    above = []
    for match in DRAWN.finditer(tree):
        depth = len(match["branch"]) // 4
        del above[depth:]
        above.append(match["name"])
        if "headrace." not in match["rest"]:
            yield match["name"], above[-2] if depth else "Exception", match["rest"]


TREE = list(drawn())


def test_the_tree_shows_every_class_and_no_other():
    assert sorted(name for name, _, _ in TREE) == sorted(errors.__all__)


@pytest.mark.parametrize(("name", "parent", "rest"), TREE, ids=[name for name, _, _ in TREE])
def test_the_tree_is_true(name, parent, rest):
    error = getattr(errors, name)
    assert error.__base__.__name__ == parent
    assert issubclass(error, errors.HeadraceError)
    if (http := re.search(r"HTTP (\d+)", rest)) is not None:
        assert error.http_status == int(http[1])
    if (codes := re.search(r"Kafka ([\d, or]+)", rest)) is not None:
        drawn_codes = [int(code) for code in re.findall(r"\d+", codes[1])]
        assert len(drawn_codes) > 1 or error.kafka_code == drawn_codes[0]
    assert (", retry" in rest) == error.retriable


@pytest.mark.parametrize("name", [name for name, _, _ in TREE])
def test_an_error_survives_the_way_between_processes(name):
    error = getattr(errors, name)("what, where and the remedy")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
