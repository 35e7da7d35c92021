"""What is said of something that is wrong, and when."""

from headrace.collect.conditions import Condition


def test_it_is_said_once_and_once_when_it_ends():
    condition = Condition()
    assert [condition.seen("slow", at) for at in (10, 25, 40)] == [True, False, False]
    assert condition.times == 3
    assert condition.absent(55) == 45
    assert condition.absent(70) is None


def test_each_way_of_it_is_said_once():
    condition = Condition()
    kinds = ["slow", "gone", "slow", "gone", "refused"]
    assert [condition.seen(kind, 0) for kind in kinds] == [True, True, False, False, True]
    assert condition.absent(9) == 9


def test_what_comes_and_goes_is_said_less_and_less():
    condition = Condition()
    said = 0
    for at in range(0, 2000, 2):
        said += condition.seen("slow", at)
        said += condition.absent(at + 1) is not None
    assert said == 3  # it began, ended, began again: the second end waits for two good times


def test_after_long_enough_it_is_as_if_it_had_never_been():
    condition = Condition()
    for _ in range(5):
        assert condition.seen("slow", 0)
        ends = [condition.absent(at) for at in range(70)]
        assert sum(end is not None for end in ends) == 1
    assert ends[0] is not None
