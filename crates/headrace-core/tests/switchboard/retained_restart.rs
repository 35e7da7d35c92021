//! Retained messages over restarts: what records, and states beside them, come to.

use headrace_core::record::{Batches, Records};
use headrace_core::switchboard::{Restored, RetainedState};

use super::retained_log::{expires, records, restarted, settle, stage, told, PARTITIONS};
use super::stage::*;

/// A state of all partitions, read in pages, in one walk.
fn state(stage: &Stage) -> Vec<u8> {
    let partitions: Vec<u32> = (0..PARTITIONS).collect();
    state_of(stage, &partitions).concat()
}

/// A state of each partition.
fn state_of(stage: &Stage, partitions: &[u32]) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(); partitions.len()];
    let mut from = Some(String::new());
    while let Some(at) = from {
        let page = stage
            .switchboard
            .retained_state(partitions, &at, 3, stage.now);
        for (all, (batches, _)) in all.iter_mut().zip(page.parts) {
            all.extend(batches);
        }
        from = page.next;
    }
    all
}

#[test]
fn a_walk_for_several_partitions_finds_what_one_for_each_finds() {
    let mut stage = stage();
    let client = stage.client(V5, "publisher");
    for number in 0..20 {
        stage.retain(client, &format!("t/{number}"), QOS_0, "x");
    }
    let together = state_of(&stage, &[2, 0]);
    let apart: Vec<_> = [[2], [0]]
        .iter()
        .flat_map(|of| state_of(&stage, of))
        .collect();
    let names = |state: &[u8]| -> Vec<String> {
        let batches = Batches::new(state).map(Result::unwrap);
        let keys = batches.flat_map(|batch| {
            let records = Records::new(&batch.header, batch.body());
            records.map(|each| String::from_utf8(each.unwrap().key.unwrap().into()).unwrap())
        });
        keys.collect()
    };
    assert!(together.iter().all(|state| names(state).len() > 3));
    for (one, other) in together.iter().zip(&apart) {
        assert_eq!(names(one), names(other));
    }
}

#[test]
fn a_start_reads_back_what_a_life_has_retained() {
    let mut stage = stage();
    let (v5, v311) = (stage.client(V5, "5"), stage.client(V311, "3"));
    stage.retain_with(v5, "a", QOS_2, "x", user(&[("k", "v"), ("k", "w")]));
    stage.release(v5, 9);
    stage.retain(v311, "a/b", QOS_1, "y");
    stage.retain(v5, "a/c", QOS_0, "old");
    stage.retain(v5, "a/c", QOS_1, "new");
    stage.retain(v5, "gone", QOS_1, "z");
    stage.retain(v311, "gone", QOS_1, "");
    stage.retain_with(v5, "brief", QOS_1, "e", expires(100));
    let log = settle(&mut stage);
    let before = told(&mut stage, "#");
    assert_eq!(before.len(), 4);
    for log in [log, state(&stage)] {
        let mut next = restarted(&log, &stage, 0);
        assert_eq!(told(&mut next, "#"), before);
        for name in ["mqtt_retained_messages", "mqtt_retained_bytes"] {
            assert_eq!(next.statistic(name), stage.statistic(name));
        }
        // And again, from what that life would keep.
        let mut third = restarted(&state(&next), &next, 0);
        assert_eq!(told(&mut third, "#"), before);
    }
}

#[test]
fn a_state_and_what_follows_it_are_what_all_records_are() {
    let mut stage = stage();
    let client = stage.client(V5, "p");
    for topic in 0..50 {
        stage.retain(client, &format!("t/{topic}"), QOS_1, "old");
    }
    settle(&mut stage);
    let kept = state(&stage);
    for topic in 0..25 {
        stage.retain(client, &format!("t/{topic}"), QOS_1, ["new", ""][topic % 2]);
    }
    let tail = settle(&mut stage);
    let before = told(&mut stage, "#");
    assert_eq!(before.len(), 38);
    let mut next = restarted(&[kept, tail].concat(), &stage, 0);
    assert_eq!(told(&mut next, "#"), before);
}

#[test]
fn mqtt_3_3_2_3_3_a_message_expires_while_the_node_is_down() {
    let mut stage = stage();
    let client = stage.client(V5, "p");
    stage.retain_with(client, "brief", QOS_1, "x", expires(10));
    stage.retain_with(client, "long", QOS_1, "x", expires(60));
    let log = settle(&mut stage);
    stage.wait(4_300);
    for log in [log, state(&stage)] {
        let of = |ms: u64| told(&mut restarted(&log, &stage, ms), "#").join(", ");
        assert!(of(0).contains("expiry 6") && of(0).contains("expiry 56"));
        assert!(of(5_700).contains("PUBLISH brief"), "its last millisecond");
        let later = of(5_701);
        assert!(
            !later.contains("brief") && later.contains("expiry 50"),
            "{later}"
        );
        assert_eq!(of(100_000), "");
        // A clock that was put back lets nothing live longer than it was published for.
        let mut early = restarted(&log, &stage, 0);
        early.now.wall_ms -= 1_000_000;
        let board = &mut early.switchboard;
        board.restore_retained(&log, early.now).unwrap();
        assert!(told(&mut early, "brief")[0].contains("expiry 10"));
    }
}

#[test]
fn what_expires_or_is_deleted_goes_from_the_log_too() {
    let mut stage = stage();
    let client = stage.client(V5, "p");
    stage.retain_with(client, "a", QOS_1, "x", expires(5));
    stage.retain(client, "b", QOS_1, "x");
    let mut log = settle(&mut stage);
    stage.wait(6_000);
    let expired: Vec<_> = stage.appends.iter().flat_map(records).collect();
    assert_eq!(expired, [("a".to_owned(), None, vec![])]);
    log.extend(settle(&mut stage));
    // One that is on its way when all is deleted goes too.
    stage.retain(client, "b", QOS_1, "y");
    let deleted = stage.switchboard.delete_retained("#", "", 7, stage.now);
    assert_eq!(deleted.unwrap().found, 1);
    stage.run();
    assert_eq!(stage.switchboard.published(), []);
    log.extend(settle(&mut stage));
    assert_eq!(stage.switchboard.published()[0].request, 7, "it is durable");
    assert_eq!(told(&mut stage, "#"), [""; 0]);
    assert_eq!(told(&mut restarted(&log, &stage, 0), "#"), [""; 0]);
    // Expired while the node was down, it goes by the first tick of the next life.
    stage.retain_with(client, "c", QOS_1, "x", expires(5));
    let log = settle(&mut stage);
    let mut next = restarted(&log, &stage, 60_000);
    next.wait(1);
    let expired: Vec<_> = next.appends.iter().flat_map(records).collect();
    assert_eq!(expired, [("c".to_owned(), None, vec![])]);
    assert_eq!(next.statistic("mqtt_retained_messages"), 0);
}

/// Key, value and header of a record.
type Case<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

#[test]
fn what_is_no_record_of_this_kind_is_left_out_and_damage_is_told() {
    let mut stage = stage();
    let client = stage.client(V5, "p");
    stage.retain_with(client, "t", QOS_1, "payload", expires(10));
    let batch = stage.appends[0].batch.clone();
    let board = &mut stage.switchboard;
    for at in 0..batch.len() {
        let mut damaged = batch.clone();
        damaged[at] ^= 0x10;
        // Not all of the header is under the CRC; what is not is not looked at.
        let restored = board.restore_retained(&damaged, stage.now);
        assert!(at < 21 || restored.is_err(), "byte {at}");
    }
    let header = b"mqtt.retained";
    let fine = [&[1, 1][..], &[0; 8], &[0]].concat();
    let cases: [Case<'_>; 9] = [
        (b"a/+", Some(b"x"), &fine),
        (b"\xFF", Some(b"x"), &fine),
        (b"t", Some(b""), &fine),
        (b"t", Some(b"x"), b""),
        (b"t", Some(b"x"), &[2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (b"t", Some(b"x"), &[1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (b"t", Some(b"x"), &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 5]),
        (b"t", Some(b"x"), &[1, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0]),
        (b"t", Some(b"x"), &[1, 1, 0, 0, 0, 0, 0, 0, 0, 9, 2, 2, 0]),
    ];
    for (key, value, fields) in cases {
        let mut builder = headrace_core::record::BatchBuilder::new();
        builder.push(0, Some(key), value, [(&header[..], Some(fields))]);
        let restored = stage
            .switchboard
            .restore_retained(&builder.finish(), stage.now);
        let expected = Restored {
            records: 1,
            ignored: 1,
            next_offset: 1,
        };
        assert_eq!(restored, Ok(expected), "{fields:?}");
    }
}

#[test]
fn a_state_of_nothing_is_empty() {
    let board = stage();
    let page = board.switchboard.retained_state(&[0], "", 9, board.now);
    let parts = vec![(Vec::new(), 0)];
    assert_eq!(page, RetainedState { parts, next: None });
}
