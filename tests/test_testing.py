"""`headrace.testing`: sound seeds, planted faults that are found, runs that replay."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import environment
from headrace import testing

ROOT = Path(__file__).parent.parent
SEEDS = 500
"""Seeds of a plain run: some 3,000 starts, in a few seconds."""
SOAK_SEEDS = 20_000
"""Of a long one: some 120,000 starts, in two minutes."""
SEEDS_OF_FAULT = {
    "acknowledge-early": 20,
    "reuse-journal": 100,
    "cut-durable": 20,
    "skip-folder-sync": 20,
    "stale-index": 300,
    "forget-producers": 100,
    "drop-completion": 100,
    "lost-sync": 20,
    "swap-unsynced": 100,
    "remove-before-swap": 100,
    "skip-timed-sync": 400,
    "swallow-refusal": 20,
    "sync-again": 100,
    "acknowledge-refused": 100,
    "keep-refused": 100,
}
"""Each planted fault is found within so many seeds."""


def assert_sound(seeds):
    for seed in seeds:
        anomaly = testing.simulate(seed).anomaly
        replay = f"replay: python -m headrace.testing --seed {seed} --trace"
        assert anomaly is None, f"seed {seed}: {anomaly!r}\n{replay}"


def command(*args, **extra):
    return subprocess.run(
        [sys.executable, "-m", "headrace.testing", *args],
        capture_output=True,
        check=False,
        env=environment(**extra),
        text=True,
        timeout=120,
    )


def test_no_seed_breaks_a_promise():
    first = int(os.environ.get("HEADRACE_TEST_SEED", "0"))
    assert_sound(range(first, first + SEEDS))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_no_seed_of_many_breaks_a_promise():
    assert_sound(range(SEEDS, SEEDS + SOAK_SEEDS))


def test_every_fault_has_a_bound():
    assert sorted(SEEDS_OF_FAULT) == sorted(testing.faults())


@pytest.mark.parametrize("fault", SEEDS_OF_FAULT)
def test_a_planted_fault_is_found(fault):
    runs = (testing.simulate(seed, fault=fault) for seed in range(SEEDS_OF_FAULT[fault]))
    found = next((run for run in runs if run.anomaly is not None), None)
    assert found is not None, f"{fault} was not found: the checks are worth nothing"
    again = testing.simulate(found.seed, fault=fault)
    assert (again.hash, repr(again.anomaly)) == (found.hash, repr(found.anomaly))


def test_a_dropped_completion_is_called_unanswered():
    runs = [testing.simulate(seed, fault="drop-completion") for seed in range(100)]
    kinds = {run.anomaly.kind for run in runs if run.anomaly is not None}
    assert "unanswered" in kinds


# --- a seed is a run ------------------------------------------------------------------------------


def test_a_seed_is_a_run_within_a_process():
    for seed in range(30):
        first, second = testing.simulate(seed), testing.simulate(seed, trace=True)
        assert first.hash == second.hash
        assert len(second.trace) == second.events
        assert first.hash != testing.simulate(seed + 1).hash


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_a_seed_is_a_run_whatever_the_hash_order(hash_seed):
    ran = command("--seed", "3", "--count", "20", PYTHONHASHSEED=hash_seed)
    assert f"{testing.simulate(22).hash:016x}" in ran.stdout


def test_the_engine_knows_no_hash_order():
    """What is simulated iterates over ordered maps alone, so that no key can change a run. The
    map of a compaction hashes by a part of its digests, and is only asked."""
    sources = [
        path
        for folder in ("log", "testing")
        for path in (ROOT / "crates/headrace-core/src" / folder).rglob("*.rs")
    ]
    assert len(sources) > 30
    unordered = re.compile(r"\bHash(Map|Set)\b|hash::(Map|Set)")
    found = [path.name for path in sources if unordered.search(path.read_text())]
    assert found == ["map.rs"]


# --- the command ----------------------------------------------------------------------------------


def test_the_command_counts_what_it_ran():
    ran = command("--count", "20")
    assert ran.returncode == 0, ran.stderr
    assert "20 seeds from 0: no promise was broken" in ran.stdout


def test_the_command_prints_what_replays_a_failure():
    ran = command("--fault", "cut-durable", "--count", "20")
    assert ran.returncode == 1
    replay = re.search(r"replay: python -m headrace\.testing (.*)", ran.stderr)
    again = command(*replay[1].split())
    assert again.returncode == 1
    assert again.stderr == ran.stderr
    assert "death: " in again.stdout


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("--fault", "gremlins"), "acknowledge-early"),
        (("--seed", "-1"), "--seed"),
        (("--count", "0"), "--count"),
        (("--sead", "1"), "--seed"),
    ],
)
def test_wrong_use_is_explained(args, hint):
    ran = command(*args)
    assert ran.returncode == 2
    assert hint in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_help_has_examples_and_exit_codes():
    ran = command("--help")
    assert ran.returncode == 0
    assert "python -m headrace.testing --count 2000" in ran.stdout
    assert "Exit codes: 0" in ran.stdout


def test_no_fault_is_misnamed():
    with pytest.raises(ValueError, match='no fault "gremlins": choose one of'):
        testing.simulate(0, fault="gremlins")


# --- what is public -------------------------------------------------------------------------------


def test_what_is_public_is_documented():
    documented = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    for name in [*testing.__all__, *testing.faults()]:
        assert f"`{name}" in documented, name


def test_the_examples_are_true():
    assert doctest.testmod(testing).failed == 0
    assert doctest.testmod(testing).attempted > 5
    examples = str(ROOT / "docs/testing.md")
    results = doctest.testfile(examples, module_relative=False, encoding="utf-8")
    assert results.attempted > 5
    assert results.failed == 0


def test_a_payload_tells_what_changed_it():
    payload = testing.payload(7, 40)
    assert len(payload) == 40
    assert testing.value_of(payload) == 7
    for at in range(len(payload)):
        flipped = bytearray(payload)
        flipped[at] ^= 4
        assert testing.value_of(bytes(flipped)) is None
    assert testing.value_of(b"") is None
