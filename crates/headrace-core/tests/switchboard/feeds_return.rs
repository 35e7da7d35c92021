//! Streams that go, or grow, while who reads them is away.

use headrace_core::mqtt::packet::Connect;
use headrace_core::record::Codec;
use headrace_core::session::Ending;
use headrace_core::switchboard::Limits;

use super::shelf::*;
use super::stage::*;

const TOLD: [&str; 2] = ["DISCONNECT 0x98", "closed: stream_deleted"];

fn comes(stage: &mut Stage, version: Version) -> u64 {
    let client = stage.asks(Connect {
        client_id: "reader",
        session_expiry_s: (version == V5).then_some(1_000),
        clean_start: false,
        ..Connect::new(version)
    });
    stage.decide(0);
    stage.write_all(Ending::Stored);
    client
}

fn lasting(limits: Limits, before: Option<&Stage>) -> Stage {
    let mut stage = Stage::new(limits);
    stage.switchboard.keep_sessions(2, 1 << 20, 1 << 20);
    if let Some(before) = before {
        stage.restore(before);
    }
    stage
}

/// A stage on which a client has subscribed to a stream and to `a`, and gone.
fn left(limits: Limits, version: Version) -> (Stage, Shelf) {
    let mut stage = lasting(limits, None);
    let mut shelf = Shelf::new(&mut stage, 1);
    let client = comes(&mut stage, version);
    shelf.subscribe(&mut stage, client, ("$stream/s/#", QOS_1), None);
    stage.subscribe_with(client, request("a", QOS_1));
    stage.write_all(Ending::Stored);
    stage.hears(client);
    stage.hang_up(client);
    stage.write_all(Ending::Stored);
    (stage, shelf)
}

/// The client is told once, and keeps all but the stream.
fn is_told(stage: &mut Stage, version: Version) {
    assert_eq!(stage.statistic("mqtt_stream_subscriptions"), 1);
    let client = comes(stage, version);
    let heard = stage.hears(client);
    assert!(heard[0].starts_with("CONNACK 0x00 present"), "{heard:?}");
    match version {
        V5 => assert_eq!(heard[1..], TOLD),
        V311 => assert_eq!(heard[1..], TOLD[1..]),
    }
    stage.write_all(Ending::Stored);
    assert_eq!(stage.statistic("mqtt_stream_subscriptions"), 0);
    let client = comes(stage, version);
    let heard = stage.hears(client);
    assert!(heard.len() == 1 && heard[0].starts_with("CONNACK 0x00 present"));
    assert_eq!(stage.statistic("mqtt_subscriptions"), 1);
}

#[test]
fn who_was_away_when_a_stream_was_deleted_is_told_on_return_and_keeps_the_rest() {
    for version in [V5, V311] {
        let (mut stage, _) = left(Limits::default(), version);
        stage.switchboard.unbind(STREAM).unwrap();
        stage.run();
        is_told(&mut stage, version);
    }
}

#[test]
fn who_was_away_is_told_after_a_restart_too_though_another_stream_has_the_name() {
    let (mut stage, _) = left(Limits::default(), V5);
    stage.switchboard.unbind(STREAM).unwrap();
    stage.run();
    stage.write_all(Ending::Stored);
    let mut again = lasting(Limits::default(), None);
    again.switchboard.bind(STREAM + 1, 1, &[], "topic").unwrap();
    again.restore(&stage);
    assert_eq!(again.switchboard.stream_readers(STREAM, 9).1, 1);
    is_told(&mut again, V5);
}

#[test]
fn a_stream_that_outgrew_who_was_away_is_told_on_return_unless_the_bound_was_raised() {
    let limits = |subscriptions_max| Limits {
        subscriptions_max,
        ..Limits::default()
    };
    for (raised, restarts) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut stage, mut shelf) = left(limits(3), V5);
        shelf.widen(&mut stage, 4);
        stage.run();
        if restarts {
            let mut again = lasting(limits(3), None);
            shelf.bind(&mut again);
            again.restore(&stage);
            stage = again;
        }
        assert_eq!(stage.statistic("mqtt_stream_positions"), 1);
        shelf.produce(&mut stage, 3, 1, Codec::None);
        if raised {
            stage.switchboard.set_limits(limits(5), stage.now);
        }
        let client = comes(&mut stage, V5);
        if raised {
            assert_eq!(stage.statistic("mqtt_stream_positions"), 4);
            shelf.serve(&mut stage);
            assert_eq!(payloads(&heard_by(&mut stage, client)), ["3:0"]);
        } else {
            let told = ["DISCONNECT 0x97", "closed: stream_outgrown"];
            assert_eq!(stage.hears(client)[1..], told);
            assert_eq!(stage.statistic("mqtt_stream_positions"), 0);
        }
    }
}

fn heard_by(stage: &mut Stage, client: u64) -> Vec<Heard> {
    stage.write_all(Ending::Stored);
    heard(stage, client)
}
