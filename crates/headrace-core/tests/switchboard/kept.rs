//! Sessions on the log: what is answered when, and what a restart makes of it. Random lives are in
//! `devices`.

use headrace_core::mqtt::packet::{Connect, Disconnect, Packet};
use headrace_core::session::Ending;
use headrace_core::switchboard::{Access, Limits, Published, Users, BATCH_BYTES_MAX};

use super::permit::{access, control};
use super::stage::*;

fn keeping() -> Stage {
    let mut stage = Stage::new(Limits::default());
    stage.switchboard.keep_sessions(2, 1 << 20, BATCH_BYTES_MAX);
    stage.switchboard.bind(1, 1, &["gone/#"], "topic").unwrap();
    stage
}

/// A client whose session lasts, connected.
pub fn lasting(stage: &mut Stage, client_id: &str) -> u64 {
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
pub fn restarted(stage: &Stage) -> Stage {
    let mut again = keeping();
    again.now.wall_ms = stage.now.wall_ms;
    again.restore(stage);
    again.run();
    again
}

/// A client that leaves a will, which is stored by a stream.
pub fn mortal(version: Version, delay_s: u32, expiry_s: u32) -> Connect<'static> {
    Connect {
        client_id: "mortal",
        session_expiry_s: (version == V5).then_some(expiry_s),
        clean_start: true,
        will: Some(Will {
            topic: "gone/a",
            payload: b"bye",
            qos: QOS_1,
            properties: PublishProperties {
                will_delay: (version == V5).then_some(delay_s),
                ..PublishProperties::default()
            },
            ..Will::default()
        }),
        ..plain(version)
    }
}

/// Connected, once the log has it.
pub fn connected(stage: &mut Stage, connect: Connect<'_>) -> u64 {
    let connection = stage.asks(connect);
    stage.decide(0);
    stage.write_all(Ending::Stored);
    let answer = stage.hears(connection);
    assert!(answer[0].starts_with("CONNACK 0x00"), "{answer:?}");
    connection
}

/// How often the will has been published since the last look.
pub fn wills(stage: &mut Stage) -> usize {
    stage.write_all(Ending::Stored);
    let found = stage.appends.len();
    while !stage.appends.is_empty() {
        stage.durable(true);
    }
    stage.write_all(Ending::Stored);
    found
}

#[test]
fn mqtt_3_1_2_5_a_client_with_a_will_is_accepted_once_that_is_on_the_log_and_others_at_once() {
    for version in [V5, V311] {
        let mut stage = keeping();
        stage.client(version, "immortal");
        assert!(stage.written.is_empty());
        let connection = stage.asks(mortal(version, 0, 0));
        stage.decide(0);
        assert_eq!(stage.hears(connection), [""; 0]);
        stage.write_all(Ending::Stored);
        assert_eq!(stage.hears(connection), ["CONNACK 0x00"]);
    }
}

/// Holds 5.0: 3.1.2-8.
/// Holds 3.1.1: 3.1.2-8.
#[test]
fn mqtt_3_1_2_8_the_will_of_a_session_that_ends_with_its_connection_outlives_the_node() {
    for version in [V5, V311] {
        let mut stage = keeping();
        connected(&mut stage, mortal(version, 5, 0));
        let mut again = restarted(&stage);
        assert_eq!(again.statistic("mqtt_sessions_kept"), 0);
        again.wait(0);
        assert_eq!(wills(&mut again), 1, "no delay is longer than the session");
        assert_eq!(again.statistic("mqtt_sessions"), 0);
        let mut third = restarted(&again);
        third.wait(100_000);
        assert_eq!(wills(&mut third), 0, "once");
        assert!(third.written.is_empty());
    }
}

#[test]
fn a_will_is_published_before_the_client_of_an_ended_session_is_back() {
    let mut stage = keeping();
    connected(&mut stage, mortal(V5, 5, 0));
    let mut again = restarted(&stage);
    let connection = again.asks(Connect {
        will: None,
        clean_start: false,
        ..mortal(V5, 0, 0)
    });
    again.decide(0);
    assert_eq!(wills(&mut again), 1);
    assert_eq!(again.hears(connection), ["CONNACK 0x00"], "none is present");
}

/// Holds 5.0: 3.1.3-9.
#[test]
fn mqtt_3_1_3_2_2_after_a_restart_every_delay_expiry_and_return() {
    for (delay_s, expiry_s) in [(0, 60), (5, 3), (5, 60), (90, 60)] {
        let due_ms = u64::from(delay_s.min(expiry_s)) * 1_000;
        for back in [
            None,
            Some((2_000, false)),
            Some((2_000, true)),
            Some((59_000, false)),
        ] {
            let mut stage = keeping();
            connected(&mut stage, mortal(V5, delay_s, expiry_s));
            stage.wait(10_000);
            let mut stage = restarted(&stage);
            let (mut passed, mut seen) = (0, Vec::new());
            for at in [
                0, 2_000, 2_999, 3_000, 4_999, 5_000, 59_000, 59_999, 60_000, 200_000,
            ] {
                stage.wait(at - passed);
                passed = at;
                if let Some((_, clean_start)) = back.filter(|(ms, _)| *ms == at) {
                    let again = Connect {
                        will: None,
                        clean_start,
                        ..mortal(V5, 0, 1_000)
                    };
                    connected(&mut stage, again);
                }
                seen.extend((0..wills(&mut stage)).map(|_| at));
            }
            let expected = match back {
                Some((ms, false)) if ms < due_ms => None,
                Some((ms, true)) if ms < due_ms => Some(ms),
                _ => Some(due_ms),
            };
            let expected: Vec<u64> = expected.into_iter().collect();
            assert_eq!(seen, expected, "{delay_s}, {expiry_s}, {back:?}");
        }
    }
}

/// Holds 5.0: 3.14.4-3.
/// Holds 3.1.1: 3.14.4-3.
#[test]
fn mqtt_3_14_4_3_after_a_normal_disconnect_no_restart_brings_the_will_back() {
    for (version, expiry_s) in [(V311, 0), (V5, 0), (V5, 60)] {
        let mut stage = keeping();
        let connection = connected(&mut stage, mortal(version, 0, expiry_s));
        stage.send(connection, &Packet::Disconnect(Disconnect::default()));
        assert_eq!(stage.hears(connection), [""; 0], "what it sees is true");
        stage.write_all(Ending::Stored);
        assert_eq!(stage.hears(connection), ["closed: client_disconnect"]);
        let mut again = restarted(&stage);
        again.wait(100_000);
        assert_eq!(wills(&mut again), 0);
    }
}

/// Holds 5.0: 3.14.0-1.
#[test]
fn mqtt_3_14_0_1_who_cannot_be_kept_is_refused_by_connack_and_leaves_no_will() {
    for (version, ending, code) in [
        (V5, Ending::NoRoom, "0x97"),
        (V5, Ending::Refused, "0x80"),
        (V311, Ending::NoRoom, "0x88"), // server unavailable
    ] {
        for expiry_s in [0, 60] {
            let mut stage = keeping();
            let connection = stage.asks(mortal(version, 0, expiry_s));
            stage.decide(0);
            stage.write_all(ending);
            let reason = match ending {
                Ending::NoRoom => "closed: disk_full",
                _ => "closed: not_stored",
            };
            let told = [format!("CONNACK {code}"), reason.to_owned()];
            assert_eq!(stage.hears(connection), told);
            stage.hang_up(connection);
            stage.wait(100_000);
            assert_eq!(wills(&mut stage), 0);
        }
    }
}

#[test]
fn a_session_that_its_client_was_not_told_of_is_not_there_the_next_time() {
    let lasts = |clean_start| Connect {
        client_id: "a",
        clean_start,
        session_expiry_s: Some(60),
        ..plain(V5)
    };
    for (begun_before, expected) in [(false, "CONNACK 0x00"), (true, "CONNACK 0x00 present")] {
        let mut stage = keeping();
        if begun_before {
            let connection = connected(&mut stage, lasts(false));
            stage.hang_up(connection);
            stage.write_all(Ending::Stored);
        }
        let refused = stage.asks(lasts(false));
        stage.decide(0);
        stage.write_all(Ending::NoRoom);
        assert_eq!(stage.hears(refused), ["CONNACK 0x97", "closed: disk_full"]);
        stage.hang_up(refused);
        stage.wait(1_000);
        stage.write_all(Ending::Stored);
        let mut again = restarted(&stage);
        for node in [&mut stage, &mut again] {
            let connection = node.asks(lasts(false));
            node.decide(0);
            node.write_all(Ending::Stored);
            assert_eq!(node.hears(connection), [expected]);
        }
    }
}

#[test]
fn what_a_user_may_after_a_restart_holds_for_its_will() {
    let mut stage = keeping();
    connected(&mut stage, mortal(V5, 0, 0));
    let mut again = restarted(&stage);
    let nobody = Access::default();
    let users = Users::with_hasher(again.switchboard.hash_key());
    again.switchboard.control(Some(nobody), &users, again.now);
    again.wait(0);
    assert_eq!(wills(&mut again), 0);
    assert_eq!(again.statistic("mqtt_sessions"), 0);
}

#[test]
fn a_will_that_rules_have_taken_away_does_not_come_back() {
    for expiry_s in [0, 60] {
        let mut stage = keeping();
        connected(&mut stage, mortal(V5, 0, expiry_s));
        control(&mut stage, Some(access(&["+connect,publish"])), &[]);
        stage.write_all(Ending::Stored);
        let mut again = restarted(&stage); // without rules
        again.wait(100_000);
        assert_eq!(wills(&mut again), 0, "{expiry_s}");
    }
}

#[test]
fn what_follows_a_refused_append_is_not_given_out() {
    let mut stage = keeping();
    let asking = ["a", "b", "c", "d"].map(|client_id| {
        stage.asks(Connect {
            client_id,
            session_expiry_s: Some(60),
            ..plain(V5)
        })
    });
    let now = stage.now;
    for asked in std::mem::take(&mut stage.decisions) {
        stage.switchboard.decided(asked.request, 0, now).unwrap();
    }
    assert!(stage.switchboard.collect(now).is_some());
    assert_eq!(stage.switchboard.persist(now), None);
    let first = stage.switchboard.session_append().unwrap();
    let refused = stage.switchboard.durable(first.ticket, Ending::NoRoom, now);
    refused.unwrap();
    assert_eq!(
        stage.switchboard.session_append(),
        None,
        "it may rest on it"
    );
    stage.run();
    for connection in asking {
        assert_eq!(
            stage.hears(connection),
            ["CONNACK 0x97", "closed: disk_full"]
        );
    }
    assert_eq!(stage.statistic("mqtt_tickets"), 0);
    stage.wait(100);
    stage.write_all(Ending::Stored);
    let there = stage.statistic("mqtt_sessions");
    let kept = restarted(&stage).statistic("mqtt_sessions");
    assert_eq!(kept, there, "the next round makes up for all of it");
}
