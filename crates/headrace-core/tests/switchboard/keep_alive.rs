//! Keep-alive (MQTT 5.0 3.1.2.10, 3.12).

use headrace_core::mqtt::packet::{Connect, Packet};
use headrace_core::switchboard::Limits;

use super::stage::*;

fn client(stage: &mut Stage, version: Version, keep_alive_s: u16) -> u64 {
    let client_id = format!("keeps-{keep_alive_s}");
    stage.client_with(Connect {
        client_id: &client_id,
        keep_alive_s,
        ..plain(version)
    })
}

/// Holds 5.0: 3.1.2-22, 3.2.2-22.
/// Holds 3.1.1: 3.1.2-24.
#[test]
fn mqtt_3_1_2_24_silence_of_one_and_a_half_intervals_ends_the_connection() {
    for (version, answer) in [
        (V5, &["DISCONNECT 0x8d", "closed: keep_alive_timeout"][..]),
        (V311, &["closed: keep_alive_timeout"]),
    ] {
        let mut stage = Stage::default();
        let silent = client(&mut stage, version, 10);
        stage.wait(14_999);
        assert_eq!(stage.hears(silent), [""; 0]);
        stage.wait(1);
        assert_eq!(stage.hears(silent), answer);
    }
}

#[test]
fn any_packet_counts_and_the_timer_is_exact_after_it() {
    let mut stage = Stage::default();
    let client = client(&mut stage, V5, 10);
    for _ in 0..10 {
        stage.wait(14_000);
        stage.send(client, &Packet::Pingreq);
        assert_eq!(stage.hears(client), ["PINGRESP"]);
    }
    stage.wait(14_999);
    assert_eq!(stage.hears(client), [""; 0]);
    stage.wait(1);
    assert_eq!(
        stage.hears(client),
        ["DISCONNECT 0x8d", "closed: keep_alive_timeout"]
    );
}

#[test]
fn half_a_packet_is_no_packet() {
    let mut stage = Stage::default();
    let client = client(&mut stage, V5, 10);
    stage.wait(14_000);
    stage.send_bytes(client, &[0xC0]);
    stage.wait(1_000);
    assert_eq!(
        stage.hears(client),
        ["DISCONNECT 0x8d", "closed: keep_alive_timeout"]
    );
}

#[test]
fn mqtt_3_1_2_10_no_interval_is_no_timer() {
    let mut stage = Stage::default();
    let client = client(&mut stage, V5, 0);
    assert_eq!(stage.wake_at, None);
    stage.wait(u64::from(u32::MAX));
    assert_eq!(stage.hears(client), [""; 0]);
}

/// Holds 5.0: 3.1.2-21, 3.2.2-21.
#[test]
fn mqtt_3_2_2_3_14_the_longest_interval_is_told_and_then_kept() {
    let mut stage = Stage::new(Limits {
        keep_alive_s_max: 20,
        ..Limits::default()
    });
    for (asked_s, answer) in [
        (20, "CONNACK 0x00"),
        (21, "CONNACK 0x00 keep-alive 20"),
        (0, "CONNACK 0x00 keep-alive 20"),
    ] {
        let client = stage.asks(Connect {
            client_id: "a",
            keep_alive_s: asked_s,
            ..plain(V5)
        });
        stage.decide(0);
        assert_eq!(stage.hears(client), [answer]);
        stage.wait(30_000);
        assert_eq!(
            stage.hears(client),
            ["DISCONNECT 0x8d", "closed: keep_alive_timeout"]
        );
    }
    // 3.1.1 cannot be told, so nothing else than it asked for is enforced.
    let old = client(&mut stage, V311, 60);
    stage.wait(89_999);
    assert_eq!(stage.hears(old), [""; 0]);
    stage.wait(1);
    assert_eq!(stage.hears(old), ["closed: keep_alive_timeout"]);
}

#[test]
fn ten_thousand_idle_connections_cause_no_effects() {
    let mut stage = Stage::default();
    for index in 0..10_000 {
        let connection = stage.switchboard.opened(index, stage.now);
        connection.unwrap();
        let client_id = index.to_string();
        let mut bytes = Vec::new();
        let connect = Connect {
            client_id: &client_id,
            keep_alive_s: 60,
            ..plain(V5)
        };
        let packet = Packet::Connect(Box::new(connect));
        headrace_core::mqtt::encode::packet(V5, &packet, &mut bytes);
        stage.switchboard.receive(index, &bytes, stage.now).unwrap();
    }
    let effects = stage.switchboard.collect(stage.now).unwrap();
    for asked in effects.decisions {
        let decided = stage.switchboard.decided(asked.request, 0, stage.now);
        decided.unwrap();
    }
    let mut wake_at = None;
    for _ in 0..100 {
        if let Some(effects) = stage.switchboard.collect(stage.now) {
            wake_at = effects.wake_at;
        }
    }
    assert_eq!(wake_at, Some(stage.now.mono_ms + 90_000));
    for _ in 0..90 {
        assert!(stage.switchboard.collect(stage.now).is_none());
        stage.now.mono_ms += 999;
        stage.switchboard.tick(stage.now);
    }
}
