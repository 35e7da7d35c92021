//! Sessions, listed, shown and ended from outside.

use std::collections::BTreeSet;

use headrace_core::mqtt::packet::Connect;
use headrace_core::switchboard::{SessionSummary, Wanted, SESSIONS_PAGE_MAX};

use super::stage::*;

const ALL: Wanted<'_> = Wanted {
    pattern: "*",
    connected: None,
};

/// Client ids of all pages.
fn names(stage: &Stage, wanted: Wanted<'_>, count_max: usize) -> Vec<String> {
    let (mut names, mut from) = (Vec::new(), Some(0));
    while let Some(start) = from {
        let (page, next) = stage
            .switchboard
            .list_sessions(wanted, start, count_max, stage.now);
        assert!(page.len() <= count_max);
        names.extend(page.into_iter().map(|each| each.client_id));
        from = next;
    }
    names.sort();
    names
}

fn away(stage: &mut Stage, client_id: &str, will: Option<Will<'_>>) {
    let connection = stage.client_with(Connect {
        client_id,
        session_expiry_s: Some(60),
        will,
        ..plain(V5)
    });
    stage.subscribe(connection, "work/#", QOS_1);
    stage.hang_up(connection);
}

#[test]
fn every_session_is_on_one_page() {
    let mut stage = Stage::default();
    for number in 0..23 {
        stage.client(V5, &format!("c{number}"));
    }
    away(&mut stage, "gone", None);
    for count_max in [1, 2, 7, 24, 100] {
        let names = names(&stage, ALL, count_max);
        assert_eq!(names.len(), 24);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 24);
    }
}

#[test]
fn a_list_may_ask_for_names_and_for_who_is_there() {
    let mut stage = Stage::default();
    for client_id in ["pump-1", "pump-2", "valve-1"] {
        stage.client(V311, client_id);
    }
    away(&mut stage, "pump-3", None);
    let list = |pattern, connected| names(&stage, Wanted { pattern, connected }, 10);
    assert_eq!(list("pump-*", None), ["pump-1", "pump-2", "pump-3"]);
    assert_eq!(list("pump-*", Some(true)), ["pump-1", "pump-2"]);
    assert_eq!(list("*", Some(false)), ["pump-3"]);
    assert_eq!(list("*-1", None), ["pump-1", "valve-1"]);
    assert_eq!(list("pump", None), [""; 0]);
}

#[test]
fn a_call_looks_at_a_bounded_number_of_sessions() {
    let mut stage = Stage::default();
    let page = |stage: &Stage, from| {
        let wanted = Wanted {
            pattern: "nobody",
            connected: None,
        };
        stage
            .switchboard
            .list_sessions(wanted, from, 1, stage.now)
            .1
    };
    stage.is_validating = false;
    for number in 0..=SESSIONS_PAGE_MAX {
        stage.client(V5, &number.to_string());
    }
    assert_eq!(page(&stage, 0), Some(SESSIONS_PAGE_MAX));
    assert_eq!(page(&stage, usize::MAX), None);
}

#[test]
fn a_summary_counts_what_waits_and_says_when_it_ends() {
    let mut stage = Stage::default();
    away(&mut stage, "sleeper", None);
    let publisher = stage.client(V5, "publisher");
    stage.publish(publisher, "work/1", QOS_1, 1, "abc");
    stage.wait(10_500);
    let (found, _) = stage.switchboard.list_sessions(
        Wanted {
            pattern: "sleeper",
            connected: None,
        },
        0,
        10,
        stage.now,
    );
    let held_bytes = found[0].held_bytes;
    assert!(held_bytes > 3);
    let expected = SessionSummary {
        client_id: "sleeper".into(),
        connection: None,
        version: None,
        expiry_s: Some(60),
        ends_in_s: Some(50),
        subscriptions: 1,
        queued_messages: 1,
        held_bytes,
        in_flight: 0,
        unreleased: 0,
        has_will: false,
    };
    assert_eq!(found, [expected]);
}

#[test]
fn a_session_is_shown_with_its_subscriptions_its_will_and_its_connection() {
    let mut stage = Stage::default();
    let connection = stage.client_with(Connect {
        client_id: "mortal",
        keep_alive_s: 40,
        receive_maximum: Some(7),
        will: Some(Will {
            topic: "gone",
            payload: b"bye",
            qos: QOS_2,
            retain: true,
            properties: PublishProperties {
                will_delay: Some(5),
                ..PublishProperties::default()
            },
        }),
        ..plain(V5)
    });
    stage.subscribe_as(connection, Some(3), request("b/#", QOS_2));
    stage.hears(connection);
    stage.subscribe(connection, "$share/g/a", QOS_0);
    stage.wait(1_250);
    let report = stage.switchboard.session("mortal", stage.now).unwrap();
    let filters: Vec<_> = report.subscriptions.iter().map(|each| &*each.0).collect();
    assert_eq!(filters, ["$share/g/a", "b/#"]);
    let (qos, id) = (report.subscriptions[1].1.qos, report.subscriptions[1].1.id);
    assert_eq!((qos, id), (QOS_2, 3));
    let will = report.will.unwrap();
    assert_eq!((&*will.topic, will.qos, will.retain), ("gone", QOS_2, true));
    assert_eq!((will.delay_s, will.bytes, will.due_in_s), (5, 3, None));
    let at = report.connection.unwrap();
    assert_eq!((at.keep_alive_s, at.silent_ms), (40, 1_250));
    assert_eq!((at.receive_maximum, at.rests), (7, None));
    assert_eq!(report.summary.version, Some(V5));
    assert_eq!(report.summary.connection, Some(connection));
    assert_eq!(stage.switchboard.session("nobody", stage.now), None);
}

#[test]
fn who_is_disconnected_is_told_why_and_keeps_its_session() {
    let mut stage = Stage::default();
    for (version, session_expiry_s) in [(V5, Some(60)), (V311, None)] {
        let connect = Connect {
            client_id: "c",
            clean_start: version == V5,
            session_expiry_s,
            ..plain(version)
        };
        let connection = stage.client_with(connect);
        let done = stage.switchboard.disconnect_client("c", 1, stage.now);
        stage.run();
        assert_eq!(done, Some(true));
        let told = match version {
            V5 => &["DISCONNECT 0x98", "closed: administrative_action"][..],
            V311 => &["closed: administrative_action"],
        };
        assert_eq!(stage.hears(connection), told);
        stage.hang_up(connection);
        let again = stage.switchboard.disconnect_client("c", 1, stage.now);
        assert_eq!(again, Some(false), "it is away");
    }
    assert_eq!(stage.switchboard.disconnect_client("x", 1, stage.now), None);
}

#[test]
fn a_deleted_session_is_gone_with_what_waited_and_its_will_is_published() {
    let will = Will {
        topic: "gone",
        payload: b"bye",
        properties: PublishProperties {
            will_delay: Some(50),
            ..PublishProperties::default()
        },
        ..Will::default()
    };
    let mut stage = Stage::default();
    let watcher = stage.client(V5, "watcher");
    stage.subscribe(watcher, "gone", QOS_0);
    away(&mut stage, "sleeper", Some(will));
    stage.publish(watcher, "work/1", QOS_1, 1, "abc");
    assert_eq!(stage.hears(watcher), ["PUBACK 1"]);
    assert!(stage.switchboard.delete_session("sleeper", 1, stage.now));
    stage.run();
    assert_eq!(stage.hears(watcher), ["PUBLISH gone qos 0: bye"]);
    assert_eq!(names(&stage, ALL, 10), ["watcher"]);
    assert!(!stage.switchboard.delete_session("sleeper", 1, stage.now));
    let returned = stage.asks(Connect {
        client_id: "sleeper",
        session_expiry_s: Some(60),
        ..Connect::new(V5)
    });
    stage.decide(0);
    assert_eq!(stage.hears(returned), ["CONNACK 0x00"]);
    assert!(stage.switchboard.delete_session("sleeper", 1, stage.now));
    stage.run();
    let told = ["DISCONNECT 0x98", "closed: administrative_action"];
    assert_eq!(stage.hears(returned), told);
}
