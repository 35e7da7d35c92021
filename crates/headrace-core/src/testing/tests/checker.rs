//! The checker finds each kind of anomaly in a history that has it, and none in one that has not.

use crate::testing::{Append, Checker, Kind, Seen};

const LOG: &str = "gpu/0";

fn append(value: u64) -> Append<'static> {
    Append {
        client: "c",
        log: LOG,
        value,
        timestamp: Some(1000 + value as i64),
        key: Some(value % 2),
        tombstone: false,
        repeats: false,
    }
}

fn seen(offset: i64, value: u64) -> Seen {
    Seen {
        offset,
        value: Some(value),
        timestamp: 1000 + value as i64,
    }
}

/// Values 1 to 3, acknowledged at offsets 0 to 2; value 4 is on its way.
fn three() -> Checker {
    let mut checker = Checker::default();
    for value in 1..=4 {
        checker.append(&append(value));
    }
    for value in 1..=3 {
        checker.stored(value, Some(value as i64 - 1));
    }
    checker
}

fn all() -> Vec<Seen> {
    (1..=3).map(|value| seen(value as i64 - 1, value)).collect()
}

fn assert_finds(kind: Kind, tell: impl FnOnce(&mut Checker)) {
    let mut checker = three();
    assert_eq!(checker.anomalies(), []);
    tell(&mut checker);
    let kinds: Vec<Kind> = checker.anomalies().iter().map(|found| found.kind).collect();
    assert_eq!(kinds.first(), Some(&kind), "{:?}", checker.anomalies());
}

#[test]
fn a_sound_history_has_no_anomaly() {
    let mut checker = three();
    checker.read("r", LOG, Some(0), &all()[..2]);
    checker.read("r", LOG, None, &all()[2..]);
    checker.bounds(LOG, 0, 3);
    checker.lookup(LOG, 1002, Some((1, 1002)));
    checker.lookup(LOG, 1004, None);
    checker.crashed();
    // What was unknown may be there after all, and then it stays.
    let four = [all(), vec![seen(3, 4)]].concat();
    checker.scan(LOG, 0, 4, &four);
    checker.append(&append(4));
    checker.stored(4, Some(3));
    checker.append(&append(5));
    checker.failed(5);
    checker.scan(LOG, 0, 4, &four);
    checker.quiet();
    assert_eq!(checker.anomalies(), []);
    assert_eq!(checker.counts(), (4, 1, 0));
}

#[test]
fn what_was_acknowledged_and_is_not_there_is_lost() {
    assert_finds(Kind::Lost, |c| c.scan(LOG, 0, 3, &[seen(0, 1), seen(2, 3)]));
    assert_finds(Kind::Lost, |c| c.bounds(LOG, 0, 2));
    assert_finds(Kind::Lost, |c| c.bounds(LOG, 1, 3));
    assert_finds(Kind::Lost, |c| {
        c.stored(4, None);
        c.scan(LOG, 0, 3, &all());
    });
    // A reader went by before the acknowledgement came.
    assert_finds(Kind::Lost, |c| {
        c.append(&append(5));
        c.read("r", LOG, Some(3), &[seen(4, 5)]);
        c.stored(4, Some(3));
    });
}

#[test]
fn what_a_reader_saw_must_stay() {
    assert_finds(Kind::Lost, |c| {
        c.read("r", LOG, Some(3), &[seen(3, 4)]);
        c.crashed();
        c.bounds(LOG, 0, 3);
    });
}

#[test]
fn the_other_kinds_are_found() {
    assert_finds(Kind::Duplicated, |c| {
        c.read("r", LOG, Some(3), &[seen(3, 3)]);
    });
    assert_finds(Kind::Reordered, |c| {
        c.append(&append(5));
        c.stored(5, Some(3));
        c.stored(4, Some(4));
    });
    assert_finds(Kind::Inconsistent, |c| {
        c.read("r", LOG, Some(2), &[seen(2, 4)]);
    });
    assert_finds(Kind::Backwards, |c| {
        c.read("r", LOG, Some(0), &all());
        c.read("r", LOG, None, &all()[1..]);
    });
    assert_finds(Kind::Regressed, |c| {
        c.bounds(LOG, 0, 9);
        c.bounds(LOG, 0, 8);
    });
    assert_finds(Kind::Lookup, |c| c.lookup(LOG, 1000, Some((1, 1002))));
    assert_finds(Kind::Lookup, |c| {
        c.bounds(LOG, 0, 3);
        c.lookup(LOG, 1003, None);
    });
    assert_finds(Kind::Unanswered, Checker::quiet);
}

#[test]
fn what_nobody_sent_is_invented() {
    assert_finds(Kind::Invented, |c| {
        c.read("r", LOG, Some(3), &[seen(3, 99)]);
    });
    assert_finds(Kind::Invented, |c| {
        c.read("r", "other/0", Some(0), &[seen(0, 4)]);
    });
    assert_finds(Kind::Invented, |c| {
        let garbled = Seen {
            value: None,
            ..seen(3, 4)
        };
        c.read("r", LOG, Some(3), &[garbled]);
    });
    assert_finds(Kind::Invented, |c| {
        c.failed(4);
        c.read("r", LOG, Some(3), &[seen(3, 4)]);
    });
    assert_finds(Kind::Invented, |c| c.stored(99, None));
}

#[test]
fn what_was_trimmed_may_be_gone() {
    let mut checker = three();
    checker.trim(LOG, 1);
    checker.scan(LOG, 1, 3, &all()[1..]);
    assert_eq!(checker.anomalies(), []);
}

/// Values 1 and 3 have one key, 2 and 4 the other.
#[test]
fn what_a_later_record_of_its_key_replaces_may_be_gone_and_nothing_else() {
    let mut checker = three();
    checker.compact(LOG, 3, 0);
    checker.scan(LOG, 0, 3, &all()[1..]);
    assert_eq!(checker.anomalies(), []);
    assert_finds(Kind::Lost, |c| {
        c.compact(LOG, 3, 0);
        c.unknown(4);
        c.scan(LOG, 0, 3, &[seen(0, 1), seen(2, 3)]);
    });
    assert_finds(Kind::Lost, |c| {
        c.compact(LOG, 2, 0); // what replaces it was not looked at
        c.scan(LOG, 0, 3, &all()[1..]);
    });
}

#[test]
fn what_replaces_a_record_may_not_be_known_before_all_was_seen() {
    let mut checker = three();
    checker.unknown(4); // it may stand at offset 3
    checker.compact(LOG, 4, 0);
    let rest = [seen(0, 1), seen(2, 3)];
    checker.read("r", LOG, Some(0), &rest);
    assert_eq!(checker.anomalies(), []);
    checker.scan(LOG, 0, 3, &rest);
    assert_eq!(checker.anomalies()[0].kind, Kind::Lost, "it is not there");
}

#[test]
fn tombstones_and_records_without_a_key_may_be_gone_in_their_time() {
    let tell = |checker: &mut Checker| {
        checker.append(&Append {
            tombstone: true,
            ..append(5)
        });
        checker.append(&Append {
            key: None,
            ..append(6)
        });
        checker.stored(4, Some(3));
        checker.stored(5, Some(4));
        checker.stored(6, Some(5));
    };
    let rest = [seen(1, 2), seen(3, 4)];
    let mut checker = three();
    tell(&mut checker);
    checker.compact(LOG, 6, 5);
    checker.scan(LOG, 0, 6, &rest);
    assert_eq!(checker.anomalies(), []);
    assert_finds(Kind::Lost, |c| {
        tell(c);
        c.compact(LOG, 6, 4);
        c.scan(LOG, 0, 6, &rest);
    });
    assert_finds(Kind::Lost, |c| {
        tell(c);
        c.compact(LOG, 5, 5);
        c.scan(LOG, 0, 6, &rest);
    });
}

#[test]
fn a_power_cut_takes_the_unsynced_end_of_a_relaxed_log_and_nothing_else() {
    let mut checker = three();
    checker.bounds(LOG, 0, 3);
    checker.read("r", LOG, Some(0), &all());
    checker.crashed();
    checker.cut(LOG, 1, 2);
    checker.scan(LOG, 0, 2, &all()[..2]);
    checker.append(&append(5));
    checker.stored(5, Some(2));
    checker.read("r", LOG, None, &[seen(2, 5)]);
    assert_eq!(checker.anomalies(), []);
    assert_finds(Kind::Lost, |c| {
        c.cut(LOG, 2, 1); // what was synced is gone
        c.bounds(LOG, 0, 1);
    });
    assert_finds(Kind::Lost, |c| {
        c.cut(LOG, 0, 3); // a hole
        c.scan(LOG, 0, 3, &[seen(0, 1), seen(2, 3)]);
    });
}

#[test]
fn a_client_that_may_repeat_may_be_stored_twice() {
    let mut checker = Checker::default();
    checker.append(&Append {
        repeats: true,
        ..append(1)
    });
    checker.scan(LOG, 0, 2, &[seen(0, 1), seen(1, 1)]);
    assert_eq!(checker.anomalies(), []);
}
