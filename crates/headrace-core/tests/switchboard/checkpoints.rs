//! Checkpoints of the log of sessions: when one begins, when it is over, and what it holds.

use headrace_core::mqtt::packet::Connect;
use headrace_core::record::Batches;
use headrace_core::session::Ending;
use headrace_core::switchboard::{Limits, SessionAppend, BATCH_BYTES_MAX};

use super::kept::{connected, lasting, mortal, restarted, wills};
use super::stage::*;

/// A stage of one partition that becomes long at once.
fn short() -> Stage {
    let mut stage = Stage::new(Limits::default());
    stage.switchboard.keep_sessions(1, 1_000, BATCH_BYTES_MAX);
    stage
}

fn records(append: &SessionAppend) -> i32 {
    let batches = Batches::new(&append.batch);
    let last = batches.map(|batch| batch.unwrap().header.last_offset_delta);
    last.map(|last| last + 1).sum()
}

#[test]
fn a_checkpoint_is_over_when_it_is_durable_and_only_then_comes_the_next() {
    let mut stage = short();
    let client = lasting(&mut stage, "a");
    let begun = |stage: &Stage| stage.written.iter().filter(|each| each.begins).count();
    for number in 0..40 {
        let topic = format!("{number}{}", "x".repeat(300));
        stage.subscribe_with(client, request(&topic, QOS_1));
        stage.unsubscribe(client, &[&topic]);
    }
    assert!(stage.written.len() > 40, "nothing of it is durable");
    assert_eq!(begun(&stage), 1);
    let ended = "mqtt_sessions_checkpoints_total";
    assert_eq!(stage.statistic(ended), 0);
    stage.write_once(Ending::Stored);
    assert_eq!(stage.statistic(ended), 1);
    assert_eq!(begun(&stage), 1, "the next follows at once");
    stage.write_all(Ending::Stored);
    assert_eq!(restarted(&stage).statistic("mqtt_sessions"), 1);
}

#[test]
fn a_checkpoint_that_was_refused_lets_nothing_go_and_begins_again() {
    let mut stage = short();
    let client = lasting(&mut stage, "a");
    stage.subscribe_with(client, request(&"x".repeat(1_000), QOS_1));
    stage.write_once(Ending::Stored);
    assert!(stage.written.iter().any(|append| append.begins));
    stage.write_all(Ending::NoRoom);
    assert_eq!((stage.checkpoints, stage.written.len()), (0, 0));
    assert_eq!(restarted(&stage).statistic("mqtt_subscriptions"), 1);
    stage.wait(100);
    assert!(stage.written.iter().any(|append| append.begins));
    stage.write_all(Ending::Stored);
    assert_eq!(stage.checkpoints, 1);
    assert_eq!(restarted(&stage).statistic("mqtt_subscriptions"), 1);
}

#[test]
fn a_checkpoint_is_written_in_slices_however_many_sessions_there_are() {
    const SESSIONS: usize = 20_000;
    let mut stage = Stage::new(Limits::default());
    stage.is_validating = false;
    stage
        .switchboard
        .keep_sessions(1, u64::MAX, BATCH_BYTES_MAX);
    for number in 0..SESSIONS {
        let client_id = format!("c{number}");
        let connection = stage.asks(Connect {
            client_id: &client_id,
            session_expiry_s: Some(60),
            ..plain(V5)
        });
        stage.decide(0);
        stage.write_once(Ending::Stored);
        stage.hang_up(connection);
    }
    stage.write_all(Ending::Stored);
    stage.switchboard.keep_sessions(1, 1, BATCH_BYTES_MAX);
    stage.run();
    let mut slices = 0;
    while stage.checkpoints == 0 {
        let records: i32 = stage.written.iter().map(records).sum();
        assert!(records < 10_000, "{records} in one round");
        slices += 1;
        stage.write_once(Ending::Stored);
    }
    assert!(slices > 5);
    assert_eq!(
        restarted(&stage).statistic("mqtt_sessions"),
        SESSIONS as u64
    );
}

#[test]
fn a_checkpoint_takes_wills_along() {
    let mut stage = Stage::new(Limits::default());
    stage.switchboard.keep_sessions(1, 1_000, BATCH_BYTES_MAX);
    stage.switchboard.bind(1, 1, &["gone/#"], "topic").unwrap();
    connected(&mut stage, mortal(V5, 0, 0));
    while stage.checkpoints < 3 {
        let client_id = "lasting";
        let connection = connected(
            &mut stage,
            Connect {
                client_id,
                session_expiry_s: Some(60),
                ..plain(V5)
            },
        );
        stage.hang_up(connection);
        stage.write_all(Ending::Stored);
    }
    let mut again = restarted(&stage);
    again.wait(0);
    assert_eq!(wills(&mut again), 1);
}

#[test]
fn a_partition_that_grows_fast_keeps_no_other_from_its_checkpoint() {
    let mut stage = Stage::new(Limits::default());
    stage.switchboard.keep_sessions(3, 1_000, BATCH_BYTES_MAX);
    let clients: Vec<u64> = (0..12)
        .map(|number| lasting(&mut stage, &format!("c{number}")))
        .collect();
    for number in 0..20 {
        let topic = format!("{number}{}", "x".repeat(1_000));
        for client in &clients {
            stage.subscribe_with(*client, request(&topic, QOS_1));
            stage.unsubscribe(*client, &[&topic]);
        }
        stage.write_once(Ending::Stored);
    }
    for (partition, batches) in &stage.log {
        assert!(batches[0].0 > 0, "partition {partition} begins at 0");
    }
    assert_eq!(stage.log.len(), 3);
}
