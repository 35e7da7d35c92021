//! Stories of a ledger.

mod lives;

use std::collections::BTreeSet;

use super::*;
use crate::hash::Key;
use crate::Now;

const POLICY: Policy = Policy {
    order: Order::None,
    deadline_ms: 30_000,
    backoff: Backoff {
        initial_ms: 1_000,
        growth_percent: 200,
        max_ms: 60_000,
        jitter_percent: 0,
    },
    failures_max: 3,
    total_ms: 0,
    ttl_ms: 0,
    read_ahead: 100,
    prioritises: false,
};

const PLAIN: Meta = Meta {
    key: None,
    priority: 4,
    since_ms: 0,
    due_ms: 0,
    delay_ms: u64::MAX,
    expires_ms: i64::MAX,
};

fn at(mono_ms: u64) -> Now {
    Now {
        mono_ms,
        wall_ms: 1_900_000_000_000 + mono_ms as i64,
    }
}

/// A message whose deadline has passed by then.
fn overdue(ledger: &mut Ledger, mono_ms: u64) -> Option<(i64, Failed)> {
    let (flight, failed) = ledger.overdue(at(mono_ms), 0)?;
    Some((flight.offset, failed))
}

fn ledger(policy: Policy, end: i64) -> Ledger {
    Ledger::new(policy, Settled::new(0), end, Key(1, 2))
}

/// The next message, where there is one; the log has nothing but plain ones.
fn next(ledger: &mut Ledger, meta: impl Fn(i64) -> Meta, now: Now) -> Option<i64> {
    loop {
        match ledger.next(now) {
            Next::Deliver(offset) => return Some(offset),
            Next::Read(offset) => ledger.met(offset, meta(offset), now),
            Next::Scan(offset) => ledger.saw(offset, meta(offset), now),
            Next::Dead(offset, cause) => {
                ledger.give_up(offset, cause);
                ledger.buried(offset);
            }
            Next::Wait | Next::Blocked => return None,
        }
    }
}

fn given(ledger: &mut Ledger, meta: impl Fn(i64) -> Meta, now: Now) -> Vec<(i64, u32)> {
    let mut all = Vec::new();
    while let Some(offset) = next(ledger, &meta, now) {
        all.push((offset, ledger.deliver(offset, 1, now)));
    }
    all
}

#[test]
fn a_lone_member_sees_again_what_it_could_not_do() {
    let mut ledger = ledger(POLICY, 2);
    assert_eq!(given(&mut ledger, |_| PLAIN, at(0)), [(0, 1), (1, 1)]);
    assert_eq!(ledger.nack(0, 1, None, at(10), 0), Ok(Failed::Again(1_010)));
    assert_eq!(given(&mut ledger, |_| PLAIN, at(1_009)), []);
    assert_eq!(given(&mut ledger, |_| PLAIN, at(1_010)), [(0, 2)]);
    assert_eq!(ledger.ack(0, 1), Err(Late::Superseded));
    assert_eq!(
        ledger.nack(0, 2, None, at(1_020), 0),
        Ok(Failed::Again(3_020))
    );
    assert_eq!(given(&mut ledger, |_| PLAIN, at(3_020)), [(0, 3)]);
    assert_eq!(
        ledger.nack(0, 3, None, at(3_030), 0),
        Ok(Failed::Dead(Cause::Attempts))
    );
    assert_eq!(ledger.depth(), 2, "until that is durable");
    ledger.buried(0);
    assert_eq!(ledger.ack(0, 3), Err(Late::Settled));
    assert_eq!(ledger.ack(1, 1), Ok(()));
    assert_eq!((ledger.depth(), ledger.settled().floor()), (0, 2));
    ledger.validate();
}

#[test]
fn what_takes_too_long_comes_again_and_may_be_given_longer() {
    let mut ledger = ledger(POLICY, 3);
    assert_eq!(given(&mut ledger, |_| PLAIN, at(0)).len(), 3);
    assert_eq!(ledger.extend(1, 1, 90_000), Ok(()));
    assert_eq!(overdue(&mut ledger, 29_999), None);
    assert_eq!(
        overdue(&mut ledger, 30_000),
        Some((0, Failed::Again(31_000)))
    );
    assert_eq!(
        overdue(&mut ledger, 30_000),
        Some((2, Failed::Again(31_000)))
    );
    assert_eq!(overdue(&mut ledger, 30_000), None);
    assert_eq!(ledger.ack(2, 1), Err(Late::Superseded));
    assert_eq!(ledger.wake_ms(), Some(31_000));
    assert_eq!(given(&mut ledger, |_| PLAIN, at(31_000)), [(0, 2), (2, 2)]);
    assert_eq!(ledger.ack(1, 1), Ok(()));
    ledger.validate();
}

#[test]
fn who_leaves_in_order_has_not_failed() {
    let mut ledger = ledger(POLICY, 1);
    for attempt in 1..=9 {
        assert_eq!(given(&mut ledger, |_| PLAIN, at(0)), [(0, attempt)]);
        assert!(ledger.gone(7, false, at(0), 0).is_none());
        assert_eq!(ledger.gone(1, false, at(0), 0), Some((0, Failed::Again(0))));
    }
    given(&mut ledger, |_| PLAIN, at(0));
    ledger.gone(1, true, at(0), 0);
    given(&mut ledger, |_| PLAIN, at(0));
    ledger.gone(1, true, at(0), 0);
    given(&mut ledger, |_| PLAIN, at(0));
    let last = ledger.gone(1, true, at(0), 0);
    assert_eq!(last, Some((0, Failed::Dead(Cause::Attempts))));
}

#[test]
fn a_key_waits_for_itself_alone_and_what_failed_keeps_its_place() {
    let order = Order::Key;
    let mut ledger = ledger(Policy { order, ..POLICY }, 6);
    let meta = |offset: i64| Meta {
        key: Some(offset as u64 % 2),
        ..PLAIN
    };
    assert_eq!(given(&mut ledger, meta, at(0)), [(0, 1), (1, 1)]);
    assert_eq!(ledger.nack(0, 1, None, at(0), 0), Ok(Failed::Again(1_000)));
    assert_eq!(ledger.ack(1, 1), Ok(()));
    assert_eq!(given(&mut ledger, meta, at(0)), [(3, 1)]);
    assert_eq!(ledger.ack(3, 1), Ok(()));
    assert_eq!(given(&mut ledger, meta, at(0)), [(5, 1)]);
    assert_eq!(given(&mut ledger, meta, at(1_000)), [(0, 2)]);
    assert_eq!(ledger.ack(0, 2), Ok(()));
    assert_eq!(given(&mut ledger, meta, at(1_000)), [(2, 1)]);
    ledger.validate();
}

#[test]
fn a_stuck_key_is_read_past_up_to_a_bound() {
    let (order, read_ahead) = (Order::Key, 10);
    let mut ledger = ledger(
        Policy {
            order,
            read_ahead,
            ..POLICY
        },
        1_000,
    );
    let meta = |offset: i64| Meta {
        key: Some(u64::from(offset % 10 == 9)),
        ..PLAIN
    };
    assert_eq!(given(&mut ledger, meta, at(0)), [(0, 1), (9, 1)]);
    assert_eq!(ledger.ack(9, 1), Ok(()));
    assert_eq!(given(&mut ledger, meta, at(0)), []);
    assert_eq!(ledger.next(at(0)), Next::Blocked);
    assert_eq!(ledger.ack(0, 1), Ok(()));
    assert_eq!(given(&mut ledger, meta, at(0)), [(1, 1)]);
}

#[test]
fn strict_order_goes_on_after_a_retry() {
    let order = Order::Strict;
    let mut ledger = ledger(Policy { order, ..POLICY }, 3);
    assert_eq!(given(&mut ledger, |_| PLAIN, at(0)), [(0, 1)]);
    assert_eq!(ledger.nack(0, 1, Some(50), at(0), 0), Ok(Failed::Again(50)));
    assert_eq!(given(&mut ledger, |_| PLAIN, at(49)), []);
    for (offset, attempt) in [(0, 2), (1, 1), (2, 1)] {
        assert_eq!(given(&mut ledger, |_| PLAIN, at(50)), [(offset, attempt)]);
        assert_eq!(ledger.ack(offset, attempt), Ok(()));
    }
    assert_eq!(ledger.depth(), 0);
}

#[test]
fn a_delayed_message_holds_up_no_strict_order_and_one_that_failed_does() {
    let order = Order::Strict;
    let mut ledger = ledger(Policy { order, ..POLICY }, 4);
    let meta = |offset: i64| Meta {
        due_ms: if offset == 0 { at(5_000).wall_ms } else { 0 },
        ..PLAIN
    };
    assert_eq!(given(&mut ledger, meta, at(0)), [(1, 1)]);
    let again = Ok(Failed::Again(9_000));
    assert_eq!(ledger.nack(1, 1, Some(9_000), at(0), 0), again);
    assert_eq!(given(&mut ledger, meta, at(8_999)), [], "nor does its time");
    assert_eq!(given(&mut ledger, meta, at(9_000)), [(1, 2)]);
    assert_eq!(ledger.ack(1, 2), Ok(()));
    assert_eq!(given(&mut ledger, meta, at(9_000)), [(0, 1)]);
    assert_eq!(
        ledger.nack(0, 1, Some(9_000), at(9_000), 0),
        Ok(Failed::Again(18_000))
    );
    assert_eq!(given(&mut ledger, meta, at(9_000)), []);
    assert_eq!(given(&mut ledger, meta, at(18_000)), [(0, 2)]);
    assert_eq!(ledger.ack(0, 2), Ok(()));
    assert_eq!(given(&mut ledger, meta, at(18_000)), [(2, 1)]);
    ledger.validate();
}

#[test]
fn the_highest_priority_goes_first_and_starves_nobody() {
    let mut ledger = ledger(POLICY, 0);
    for offset in 0..60 {
        let priority = if offset < 20 { 0 } else { 9 };
        ledger.met_early(offset, Meta { priority, ..PLAIN }, at(0));
    }
    let order: Vec<i64> = given(&mut ledger, |_| PLAIN, at(0))
        .iter()
        .map(|each| each.0)
        .collect();
    assert_eq!(order[..9], [20, 21, 22, 23, 24, 25, 26, 0, 27]);
    assert_eq!(order.iter().take(40).filter(|at| **at < 20).count(), 5);
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 60);
}

#[test]
fn a_message_waits_for_its_time_and_holds_up_nobody_of_its_key() {
    let order = Order::Key;
    let mut ledger = ledger(Policy { order, ..POLICY }, 3);
    let meta = |offset: i64| Meta {
        key: Some(1),
        due_ms: if offset == 0 { at(5_000).wall_ms } else { 0 },
        ..PLAIN
    };
    assert_eq!(given(&mut ledger, meta, at(0)), [(1, 1)]);
    assert_eq!(ledger.ack(1, 1), Ok(()));
    assert_eq!(given(&mut ledger, meta, at(5_000)), [(2, 1)]);
    assert_eq!(ledger.ack(2, 1), Ok(()));
    assert_eq!(given(&mut ledger, meta, at(5_000)), [(0, 1)]);
    ledger.validate();
}

#[test]
fn what_is_too_old_is_not_given_out() {
    let mut ledger = ledger(POLICY, 2);
    let meta = |offset: i64| Meta {
        expires_ms: if offset == 0 {
            at(10).wall_ms
        } else {
            i64::MAX
        },
        ..PLAIN
    };
    assert_eq!(ledger.next(at(10)), Next::Read(0));
    ledger.met(0, meta(0), at(10));
    assert_eq!(ledger.next(at(10)), Next::Dead(0, Cause::Expired));
    ledger.give_up(0, Cause::Expired);
    ledger.buried(0);
    assert_eq!(given(&mut ledger, meta, at(10)), [(1, 1)]);
}

#[test]
fn back_off_grows_to_its_bound_and_jitter_shortens_it() {
    let rest = |failures| POLICY.backoff.rest_ms(failures, 0);
    assert_eq!(
        [1, 2, 3, 7, 400].map(rest),
        [1_000, 2_000, 4_000, 60_000, 60_000]
    );
    let jitter = Backoff {
        jitter_percent: 50,
        ..POLICY.backoff
    };
    assert_eq!(
        [0, 500, 501].map(|random| jitter.rest_ms(1, random)),
        [1_000, 500, 1_000]
    );
}

#[test]
fn urgent_messages_overtake_whatever_lies_before_them() {
    let policy = Policy {
        prioritises: true,
        ..POLICY
    };
    let mut ledger = ledger(policy, 2_000);
    let meta = |offset: i64| Meta {
        priority: match offset {
            0 => 0,
            1_500 => 7,
            1_900 => 9,
            _ => PRIORITY,
        },
        ..PLAIN
    };
    let one = |ledger: &mut Ledger, mono_ms| {
        let offset = next(ledger, meta, at(mono_ms)).unwrap();
        ledger.deliver(offset, 1, at(mono_ms));
        offset
    };
    let first: Vec<i64> = (0..8).map(|_| one(&mut ledger, 0)).collect();
    assert_eq!(first, [1_900, 1_500, 1, 2, 3, 4, 5, 0], "and none starves");
    // What comes later overtakes from the next millisecond on.
    ledger.grown(2_001);
    let meta = |offset: i64| Meta {
        priority: if offset == 2_000 { 9 } else { PRIORITY },
        ..PLAIN
    };
    assert_eq!(next(&mut ledger, meta, at(0)), Some(6));
    assert_eq!(next(&mut ledger, meta, at(1)), Some(2_000));
    ledger.validate();
}

#[test]
fn a_group_with_a_long_way_to_go_begins_before_it_has_looked_at_all_of_it() {
    let policy = Policy {
        prioritises: true,
        ..POLICY
    };
    let mut ledger = ledger(policy, 10 * PASS_MAX);
    let meta = |offset: i64| Meta {
        priority: if offset == 2 * PASS_MAX { 9 } else { PRIORITY },
        ..PLAIN
    };
    assert_eq!(next(&mut ledger, meta, at(0)), Some(0));
    assert_eq!(next(&mut ledger, meta, at(1)), Some(0));
    assert_eq!(next(&mut ledger, meta, at(2)), Some(2 * PASS_MAX));
}

#[test]
fn the_oldest_that_nobody_has_is_let_go_first() {
    let mut ledger = ledger(POLICY, 10);
    assert_eq!(next(&mut ledger, |_| PLAIN, at(0)), Some(0));
    ledger.deliver(0, 1, at(0));
    assert_eq!(ledger.oldest(false), Some(Oldest::Unread(1)));
    ledger.drop(Oldest::Unread(1));
    assert_eq!(ledger.oldest(true), Some(Oldest::Unread(2)));
    ledger.met(2, PLAIN, at(0));
    assert_eq!(ledger.oldest(true), Some(Oldest::Known(2)));
    ledger.give_up(2, Cause::Depth);
    assert_eq!((ledger.depth(), ledger.owed()), (9, 8));
    // A crash forgets who had it, not that it is dead.
    let chunks = ledger.settled().numbers();
    let chunks = chunks.map(|number| {
        let mut chunk = Chunk::default();
        let record = ledger.settled().whole_record(number).unwrap();
        chunk.take_in(&record).unwrap();
        (number, chunk)
    });
    let settled = Settled::restored(chunks).unwrap();
    let mut after = Ledger::new(POLICY, settled, 10, Key(1, 2));
    assert_eq!(next(&mut after, |_| PLAIN, at(0)), Some(0));
    after.deliver(0, 1, at(0));
    after.met(2, PLAIN, at(0));
    assert_eq!(after.next(at(0)), Next::Dead(2, Cause::Depth));
    // What failed may be let go again.
    ledger.buried(2);
    assert_eq!(ledger.oldest(false), Some(Oldest::Unread(3)));
    assert_eq!(ledger.nack(0, 1, None, at(0), 0), Ok(Failed::Again(1_000)));
    assert_eq!(ledger.oldest(false), Some(Oldest::Known(0)));
    ledger.validate();
}

#[test]
fn another_order_holds_for_what_is_in_flight_and_known_too() {
    for order in [Order::Key, Order::Strict] {
        let mut ledger = ledger(POLICY, 6);
        let meta = |offset: i64| Meta {
            key: Some(u64::from(offset == 4)),
            ..PLAIN
        };
        for offset in 0..5 {
            assert_eq!(next(&mut ledger, meta, at(0)), Some(offset));
            ledger.deliver(offset, 1, at(0));
        }
        ledger.set_policy(Policy { order, ..POLICY });
        ledger.validate();
        // While two of them are out none goes, whatever is before it.
        for offset in [0, 2, 3] {
            assert!(ledger.nack(offset, 1, Some(0), at(1), 0).is_ok());
        }
        assert_eq!(given(&mut ledger, meta, at(1)), []);
        assert_eq!(ledger.ack(4, 1), Ok(()));
        assert_eq!(given(&mut ledger, meta, at(1)), []);
        assert_eq!(ledger.ack(1, 1), Ok(()));
        for (offset, attempt) in [(0, 2), (2, 2), (3, 2), (5, 1)] {
            assert_eq!(given(&mut ledger, meta, at(1)), [(offset, attempt)]);
            ledger.validate();
            assert_eq!(ledger.ack(offset, attempt), Ok(()));
        }
    }
}

#[test]
fn a_message_that_waits_behind_others_says_so_where_they_go_one_at_a_time() {
    let order = Order::Strict;
    let mut ledger = ledger(Policy { order, ..POLICY }, 3);
    let told = |ledger: &Ledger| [0, 1, 2].map(|offset| ledger.standing(offset, &PLAIN, at(0)));
    let waits = Standing::Waiting;
    assert_eq!(told(&ledger), [Standing::Available, waits, waits]);
    assert_eq!(given(&mut ledger, |_| PLAIN, at(0)), [(0, 1)]);
    let flies = Standing::InFlight(1, 30_000);
    assert_eq!(told(&ledger), [flies, waits, waits]);
}

#[test]
fn a_clock_that_was_set_makes_no_rest_longer() {
    let back = |now: Now| Now {
        wall_ms: now.wall_ms - 86_400_000,
        ..now
    };
    let mut before = ledger(POLICY, 1);
    assert_eq!(given(&mut before, |_| PLAIN, at(0)), [(0, 1)]);
    assert_eq!(before.nack(0, 1, None, at(0), 0), Ok(Failed::Again(1_000)));
    let record = before.settled().whole_record(0).expect("it has failed");
    let mut chunk = Chunk::default();
    chunk.take_in(&record).expect("ours");
    let settled = Settled::restored([(0, chunk)]);
    let mut ledger = Ledger::new(POLICY, settled.expect("there is one"), 3, Key(1, 2));
    // The second was published an hour ahead, to be delayed; the third is for a time of day.
    let meta = |offset: i64| Meta {
        due_ms: [0, at(3_602_000).wall_ms, at(3_602_000).wall_ms][offset as usize],
        delay_ms: [u64::MAX, 2_000, u64::MAX][offset as usize],
        ..PLAIN
    };
    assert_eq!(given(&mut ledger, meta, back(at(10))), []);
    assert_eq!(ledger.wake_ms(), Some(1_010));
    assert_eq!(given(&mut ledger, meta, back(at(1_010))), [(0, 2)]);
    assert_eq!(given(&mut ledger, meta, back(at(2_010))), [(1, 1)]);
    let due_ms = 86_400_000 + 3_602_000;
    assert_eq!(given(&mut ledger, meta, back(at(due_ms - 1))), []);
    assert_eq!(given(&mut ledger, meta, back(at(due_ms))), [(2, 1)]);
}

#[test]
fn what_has_overtaken_others_stands_behind_them_once_it_has_failed_in_another_order() {
    let prioritises = true;
    let mut ledger = ledger(
        Policy {
            prioritises,
            ..POLICY
        },
        4,
    );
    let meta = |offset: i64| Meta {
        key: Some(7),
        priority: if [1, 2].contains(&offset) { 9 } else { 4 },
        ..PLAIN
    };
    for offset in [1, 2] {
        assert_eq!(next(&mut ledger, meta, at(0)), Some(offset));
        ledger.deliver(offset, 1, at(0));
    }
    let order = Order::Key;
    ledger.set_policy(Policy { order, ..POLICY });
    assert_eq!(
        given(&mut ledger, meta, at(0)),
        [],
        "two of the key are out"
    );
    for offset in [1, 2] {
        assert!(ledger.nack(offset, 1, Some(0), at(1), 0).is_ok());
        ledger.validate();
    }
    for (offset, attempt) in [(0, 1), (1, 2), (2, 2), (3, 1)] {
        assert_eq!(given(&mut ledger, meta, at(1)), [(offset, attempt)]);
        assert_eq!(ledger.ack(offset, attempt), Ok(()));
    }
}

#[test]
fn what_is_set_aside_grows_too_old_at_its_time() {
    let ttl_ms = 5_000;
    let mut ledger = ledger(Policy { ttl_ms, ..POLICY }, 1);
    let meta = |_| Meta {
        since_ms: at(0).wall_ms,
        ..PLAIN
    };
    assert_eq!(next(&mut ledger, meta, at(0)), Some(0));
    ledger.set_aside(0, 1_000, at(0));
    assert_eq!(ledger.wake_ms(), Some(ttl_ms));
    assert_eq!(next(&mut ledger, meta, at(ttl_ms)), None);
    assert!(ledger.settled().has(0), "it is dead");
}
