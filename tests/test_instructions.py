"""Instructions of hot paths are those that benchmarks/instructions.json keeps (ADR 0093)."""

import json
import platform

import instructions
import pytest

KEPT = json.loads(instructions.KEPT.read_text())


def counts(*, machine="x86_64", rustc="1.95", **per_operation):
    return instructions.Counts(machine, rustc, per_operation)


def kept(**per_operation):
    return {"x86_64": {"rustc": "1.95", "instructions": per_operation}}


@pytest.mark.slow
@pytest.mark.skipif(
    platform.machine() not in KEPT,
    reason=f"benchmarks/instructions.json has none of {platform.machine()}: make instructions",
)
def test_no_hot_path_takes_a_tenth_more_instructions_than_are_kept():
    counted = instructions.count()
    assert "\n".join(instructions.differences(counted, KEPT)) == ""


def test_what_grows_or_falls_by_more_than_a_tenth_is_told_with_what_to_do():
    assert instructions.differences(counts(a=109, b=91), kept(a=100, b=100)) == []
    grown, fallen = instructions.differences(counts(a=111, b=89), kept(a=100, b=100))
    assert grown.startswith("a: 111 instructions, 11% more than 100: make it cheaper again")
    assert fallen.startswith("b: 89 instructions, 11% fewer than 100: keep that")
    assert grown.endswith("make instructions")
    assert fallen.endswith("make instructions")


def test_another_compiler_has_more_room_and_not_all_of_it():
    found = instructions.differences(counts(rustc="1.99", a=129, b=50), kept(a=100, b=100))
    assert found == []
    (grown,) = instructions.differences(counts(rustc="1.99", a=131), kept(a=100))
    assert "31% more" in grown


def test_paths_of_the_file_are_those_that_are_counted():
    (new, gone) = instructions.differences(counts(a=1), kept(b=1))
    assert new.startswith("a: 1 instructions, and none are kept")
    assert gone.startswith("b: is kept, and counted no more")
    assert instructions.differences(counts(machine="riscv64", a=1), kept(a=1)) == []
