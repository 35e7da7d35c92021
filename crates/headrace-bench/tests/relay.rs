//! The load against the relay: what it delivers is found, and what it loses.
#![allow(missing_docs)]

use std::time::Duration;

use headrace_bench::{Load, Pace, Pattern, Plan, Relay, Report};

fn report_of(drop_every: u64, plan: impl FnOnce(Plan) -> Plan) -> Report {
    let relay = Relay::start(([127, 0, 0, 1], 0).into(), drop_every).unwrap();
    let load = Load::start(plan(Plan {
        server: relay.address(),
        version: 5,
        prefix: "bench".to_owned(),
        credentials: None,
        session_expiry_s: 0,
        publishers: 3,
        subscribers: 3,
        idle: 1,
        opening: 2,
        pattern: Pattern::Pair,
        qos: 0,
        payload: 100,
        pace: Pace::Closed { window: 50 },
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(100),
        drain: Duration::from_millis(500),
    }));
    let report = load.unwrap().finish().unwrap();
    relay.stop().unwrap();
    report
}

fn faults(report: &Report) -> [u64; 4] {
    [
        report.duplicated,
        report.reordered,
        report.corrupted,
        report.disconnected,
    ]
}

#[test]
fn all_that_is_published_comes_in_both_versions() {
    for version in [4, 5] {
        let report = report_of(0, |plan| Plan { version, ..plan });
        assert_eq!(report.trouble, None);
        assert!(report.published > 0);
        assert_eq!((report.lost, faults(&report)), (0, [0; 4]));
        assert!((0.0..=1.0).contains(&report.busy));
    }
}

#[test]
fn messages_that_are_larger_than_what_is_read_at_once_come_whole() {
    let report = report_of(0, |plan| Plan {
        payload: (1 << 20) + 7,
        pace: Pace::Closed { window: 4 },
        ..plan
    });
    assert_eq!(report.trouble, None);
    assert!(report.published > 0);
    assert_eq!((report.lost, faults(&report)), (0, [0; 4]));
}

#[test]
fn every_tenth_that_is_lost_is_found() {
    let report = report_of(10, |plan| Plan {
        publishers: 1,
        subscribers: 1,
        pace: Pace::Open { rate: 2000.0 },
        ..plan
    });
    assert!(report.published >= 10);
    assert_eq!(report.lost, report.published / 10);
    assert_eq!(faults(&report), [0; 4]);
}

#[test]
fn what_the_relay_does_not_serve_is_refused() {
    for (pattern, qos) in [(Pattern::All, 0), (Pattern::Pair, 1)] {
        let report = report_of(0, |plan| Plan {
            pattern,
            qos,
            ..plan
        });
        assert_eq!(report.published, 0);
        assert!(report.trouble.unwrap().contains("0x80"));
    }
}
