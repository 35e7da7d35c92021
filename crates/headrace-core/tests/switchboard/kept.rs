//! Sessions on the log: what is answered when, and what a restart makes of it. Random lives are in
//! `devices`.

use headrace_core::mqtt::packet::Connect;
use headrace_core::session::Ending;
use headrace_core::switchboard::{Limits, Published, BATCH_BYTES_MAX};

use super::stage::*;

fn keeping() -> Stage {
    let mut stage = Stage::new(Limits::default());
    stage.switchboard.keep_sessions(2, 1 << 20, BATCH_BYTES_MAX);
    stage
}

/// A client whose session lasts, connected.
fn lasting(stage: &mut Stage, client_id: &str) -> u64 {
    let connection = stage.asks(Connect {
        client_id,
        clean_start: false,
        ..plain(V311)
    });
    stage.decide(0);
    assert_eq!(
        stage.hears(connection),
        [""; 0],
        "CONNACK waits for the log"
    );
    stage.write_all(Ending::Stored);
    assert_eq!(stage.hears(connection).len(), 1);
    connection
}

fn answered(request: u64, reason_code: u8) -> Published {
    Published {
        request,
        reason_code,
        streams: 0,
    }
}

#[test]
fn who_deletes_a_session_is_answered_once_the_log_has_it() {
    let mut stage = keeping();
    lasting(&mut stage, "a");
    let now = stage.now;
    assert!(stage.switchboard.delete_session("a", 7, now));
    assert!(!stage.switchboard.delete_session("a", 8, now));
    stage.run();
    assert_eq!(stage.switchboard.published(), [], "that it is gone neither");
    stage.write_all(Ending::Stored);
    let both = [answered(7, 0), answered(8, 0)];
    assert_eq!(stage.switchboard.published(), both);
}

#[test]
fn who_disconnects_a_client_is_answered_once_the_log_has_it() {
    let mut stage = keeping();
    lasting(&mut stage, "a");
    let now = stage.now;
    assert_eq!(stage.switchboard.disconnect_client("a", 7, now), Some(true));
    stage.run();
    assert_eq!(stage.switchboard.published(), []);
    stage.write_all(Ending::Stored);
    assert_eq!(stage.switchboard.published(), [answered(7, 0)]);
    assert_eq!(stage.switchboard.disconnect_client("b", 8, now), None);
    stage.run();
    assert_eq!(stage.switchboard.published(), [answered(8, 0)]);
}

#[test]
fn who_deletes_a_session_hears_that_the_disk_refused() {
    let mut stage = keeping();
    lasting(&mut stage, "a");
    assert!(stage.switchboard.delete_session("a", 7, stage.now));
    stage.run();
    stage.write_all(Ending::NoRoom);
    assert_eq!(stage.switchboard.published(), [answered(7, 0x97)]);
    stage.wait(1_000);
    stage.write_all(Ending::Stored);
    let mut again = restarted(&stage);
    assert!(
        !again.switchboard.delete_session("a", 9, stage.now),
        "later"
    );
}

/// Another node on what the log holds.
fn restarted(stage: &Stage) -> Stage {
    let mut again = keeping();
    again.now.wall_ms = stage.now.wall_ms;
    for (partition, batches) in &stage.log {
        again.switchboard.restore(*partition, batches).unwrap();
    }
    again.switchboard.restored(again.now);
    again.log = stage.log.clone();
    again.run();
    again
}
