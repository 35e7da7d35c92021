//! Which segments a pass takes, and what it makes one.

use super::*;

#[test]
fn young_segments_and_the_active_one_are_left_alone() {
    let mut rig = Rig::new(8);
    rig.keys = 3;
    rig.fill(100);
    let old = rig.wall_ms;
    rig.wall_ms += 10 * HOUR_MS;
    rig.machine.roll(LOG, rig.wall_ms).unwrap();
    rig.fill(100);
    let settings = CompactionSettings {
        min_lag_ms: 5 * HOUR_MS as u64,
        ..rig.settings()
    };
    compact(&mut rig.machine, &rig.disk, settings, commit).unwrap();
    for facts in rig.machine.segments(LOG).unwrap() {
        assert_eq!(facts.clean, facts.max_timestamp.unwrap() < old, "{facts:?}");
    }
    let again = rig.machine.plan_compaction(LOG, settings).unwrap();
    assert!(again.is_none(), "there is nothing to do");
}

/// What clients say of the time is no reason to wait for ever.
#[test]
fn a_segment_is_no_younger_than_the_beginning_of_the_next() {
    for stamp in [4_000_000_000_000, -1] {
        let mut rig = Rig::new(12);
        for at in 0..60 {
            let mut builder = BatchBuilder::new();
            let timestamp = if at == 1 { stamp } else { rig.wall_ms };
            builder.push(timestamp, Some(&[at % 3]), Some(&[at; 1000]), []);
            let sent = builder.finish();
            rig.machine.append(LOG, sent, 0, rig.wall_ms, 0).unwrap();
            commit(&mut rig.machine, &rig.disk);
        }
        let plan = |rig: &mut Rig, later_ms: i64| {
            let settings = CompactionSettings {
                wall_ms: rig.wall_ms + later_ms,
                min_lag_ms: HOUR_MS as u64,
                ..rig.settings()
            };
            rig.machine.plan_compaction(LOG, settings).unwrap()
        };
        assert!(plan(&mut rig, HOUR_MS / 2).is_none());
        assert!(plan(&mut rig, 2 * HOUR_MS).is_some());
    }
}

/// Else the oldest records would stay for as long as the newest of them, again and again.
#[test]
fn segments_that_expire_at_different_times_stay_apart() {
    for (span_ms, most) in [(None, i64::MAX), (Some(3 * HOUR_MS as u64), 3 * HOUR_MS)] {
        let mut rig = Rig::new(10);
        rig.keys = 3;
        for _ in 0..4 {
            for _ in 0..4 {
                rig.fill(5);
                rig.wall_ms += HOUR_MS;
                rig.machine.roll(LOG, rig.wall_ms).unwrap();
                commit(&mut rig.machine, &rig.disk);
            }
            let settings = CompactionSettings {
                span_ms,
                ..rig.settings()
            };
            compact(&mut rig.machine, &rig.disk, settings, commit).unwrap();
        }
        let segments = rig.machine.segments(LOG).unwrap();
        let closed: Vec<_> = segments.windows(2).skip(1).collect(); // the first began at 0
        for pair in &closed {
            let newest = pair[0].max_timestamp.min(pair[1].created_ms);
            assert!(
                newest.unwrap() - pair[0].created_ms.unwrap() <= most,
                "{pair:?}"
            );
        }
        assert_eq!(closed.is_empty(), span_ms.is_none(), "{closed:?}");
    }
}

#[test]
fn small_neighbours_merge_up_to_the_size_of_a_segment() {
    let mut rig = Rig::new(9);
    let small = LogSettings {
        segment_bytes: 2000,
        ..LogSettings::default()
    };
    rig.machine.configure(LOG, small).unwrap();
    rig.keys = 1000;
    rig.fill(300);
    let many = rig.machine.segments(LOG).unwrap().len();
    let segment_bytes = 30_000;
    let large = LogSettings {
        segment_bytes,
        ..LogSettings::default()
    };
    rig.machine.configure(LOG, large).unwrap();
    rig.compact().unwrap();
    let facts = rig.machine.segments(LOG).unwrap();
    assert!(many > 3 * facts.len(), "{many} became {}", facts.len());
    assert!(facts.iter().all(|facts| facts.bytes <= segment_bytes));
}

#[test]
fn damage_is_named_and_nothing_is_changed() {
    let mut rig = Rig::new(12);
    rig.fill(200);
    let path = rig.machine.log(LOG).unwrap().segments[0].path.clone();
    let mut bytes = rig.disk.bytes(&path);
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    rig.disk.overwrite(&path, bytes.clone());
    let Err(Error::Corrupt(damage)) = rig.compact() else {
        panic!("it went unseen");
    };
    assert_eq!(damage.path, path.to_string());
    assert_eq!(rig.disk.bytes(&path), bytes);
}
