//! Sessions that outlive their connection (MQTT 5.0 3.1.2.4, 3.1.2.11.2, 3.1.4, 3.14.2.2.2, 4.1).

use headrace_core::mqtt::packet::{Connect, Disconnect, Packet};
use headrace_core::switchboard::Limits;

use super::stage::*;

/// A CONNECT that goes on with the session of `a`, which then lives for so long.
fn on(version: Version, expiry_s: u32) -> Connect<'static> {
    Connect {
        client_id: "a",
        clean_start: false,
        session_expiry_s: (version == V5).then_some(expiry_s),
        ..plain(version)
    }
}

/// Connects, and what CONNACK says.
fn connects(stage: &mut Stage, connect: Connect<'_>) -> (u64, Vec<String>) {
    let client = stage.asks(connect);
    stage.decide(0);
    let heard = stage.hears(client);
    (client, heard)
}

fn disconnect(stage: &mut Stage, client: u64, session_expiry_s: Option<u32>) {
    let disconnect = Disconnect {
        session_expiry_s,
        ..Disconnect::default()
    };
    stage.send(client, &Packet::Disconnect(disconnect));
}

/// Holds 5.0: 3.1.2-5, 3.1.3-2, 3.2.2-3, 4.5.0-1.
/// Holds 3.1.1: 3.1.2-4, 3.1.2-5, 3.1.3-2, 3.2.2-2, 4.1.0-1, 4.5.0-1.
#[test]
fn mqtt_3_1_2_5_a_session_is_found_again_with_its_subscriptions_and_what_it_missed() {
    for version in [V5, V311] {
        let mut stage = Stage::default();
        let publisher = stage.client(V5, "publisher");
        let (client, heard) = connects(&mut stage, on(version, 60));
        assert_eq!(heard[0].split(" expiry").next(), Some("CONNACK 0x00"));
        stage.subscribe(client, "t", QOS_2);
        stage.hang_up(client);
        assert_eq!(stage.statistic("mqtt_sessions_away"), 1);
        stage.publish(publisher, "t", QOS_0, 0, "zero");
        stage.publish(publisher, "t", QOS_1, 1, "one");
        stage.publish(publisher, "t", QOS_2, 2, "two");
        let (client, heard) = connects(&mut stage, on(version, 60));
        assert!(heard[0].starts_with("CONNACK 0x00 present"), "{heard:?}");
        assert_eq!(
            heard[1..],
            ["PUBLISH t qos 1 id 1: one", "PUBLISH t qos 2 id 2: two"]
        );
        stage.publish(publisher, "t", QOS_0, 0, "live");
        assert_eq!(stage.hears(client), ["PUBLISH t qos 0: live"]);
        let away = "mqtt_messages_dropped_total{reason=\"away\"}";
        assert_eq!(stage.statistic(away), 1);
        assert_eq!(stage.statistic("mqtt_sessions_resumed_total"), 1);
    }
}

/// Holds 5.0: 3.1.2-4, 3.1.4-4, 3.2.2-2.
/// Holds 3.1.1: 3.1.2-6, 3.1.4-3, 3.2.2-1.
#[test]
fn mqtt_3_1_2_4_a_clean_start_ends_the_session_that_was_there() {
    for version in [V5, V311] {
        let mut stage = Stage::default();
        let (client, _) = connects(&mut stage, on(V5, 60));
        stage.subscribe(client, "t", QOS_1);
        disconnect(&mut stage, client, None);
        let publisher = stage.client(V5, "publisher");
        stage.publish(publisher, "t", QOS_1, 1, "missed");
        let clean = Connect {
            client_id: "a",
            ..plain(version)
        };
        let (_, heard) = connects(&mut stage, clean);
        assert_eq!(heard, ["CONNACK 0x00"]);
        assert_eq!(stage.statistic("mqtt_subscriptions"), 0);
        assert_eq!(stage.statistic("mqtt_sessions"), 2);
        let ended = "mqtt_messages_dropped_total{reason=\"session_ended\"}";
        assert_eq!(stage.statistic(ended), 1);
    }
}

/// Holds 5.0: 3.1.2-23, 4.1.0-1, 4.1.0-2.
#[test]
fn mqtt_3_1_2_23_a_session_ends_when_its_expiry_has_passed_and_not_before() {
    let mut stage = Stage::default();
    let (client, _) = connects(&mut stage, on(V5, 60));
    stage.subscribe(client, "t", QOS_1);
    stage.hang_up(client);
    stage.wait(59_999);
    let (client, heard) = connects(&mut stage, on(V5, 60));
    assert_eq!(heard, ["CONNACK 0x00 present"]);
    stage.wait(600_000);
    disconnect(&mut stage, client, None);
    stage.wait(59_999);
    assert_eq!(stage.statistic("mqtt_sessions"), 1);
    assert_eq!(stage.wake_at, Some(stage.now.mono_ms + 1));
    stage.wait(1);
    assert_eq!(stage.statistic("mqtt_sessions"), 0);
    assert_eq!(stage.statistic("mqtt_subscriptions"), 0);
    assert_eq!(stage.statistic("mqtt_sessions_expired_total"), 1);
    assert_eq!(stage.wake_at, None);
    let (_, heard) = connects(&mut stage, on(V5, 60));
    assert_eq!(heard, ["CONNACK 0x00"]);
}

/// Holds 5.0: 3.1.2-6, 3.2.2-3, 4.1.0-2.
#[test]
fn mqtt_3_1_2_11_2_without_an_expiry_a_session_ends_with_its_connection() {
    for expiry_s in [None, Some(0)] {
        let mut stage = Stage::default();
        let connect = Connect {
            session_expiry_s: expiry_s,
            ..on(V5, 0)
        };
        let (client, _) = connects(&mut stage, connect.clone());
        stage.hang_up(client);
        assert_eq!(stage.statistic("mqtt_sessions"), 0);
        let (_, heard) = connects(&mut stage, connect.clone());
        assert_eq!(heard, ["CONNACK 0x00"]);
        // Taken over, it has ended too.
        let (_, heard) = connects(&mut stage, connect);
        assert_eq!(heard, ["CONNACK 0x00"]);
    }
}

#[test]
fn mqtt_3_2_2_3_2_the_client_is_told_of_a_lower_expiry_and_it_holds() {
    for (asked_s, max_s, told) in [
        (60, 60, ""),
        (61, 60, " expiry 60"),
        (u32::MAX, 60, " expiry 60"),
        (u32::MAX, u32::MAX, ""),
    ] {
        let mut stage = Stage::new(Limits {
            session_expiry_s_max: max_s,
            ..Limits::default()
        });
        let (client, heard) = connects(&mut stage, on(V5, asked_s));
        assert_eq!(heard, [format!("CONNACK 0x00{told}")]);
        disconnect(&mut stage, client, Some(asked_s));
        stage.wait(60_000);
        let lives = u64::from(max_s == u32::MAX);
        assert_eq!(stage.statistic("mqtt_sessions"), lives, "{asked_s}");
        stage.wait(1 << 50);
        assert_eq!(stage.statistic("mqtt_sessions"), lives, "{asked_s}");
    }
}

/// Holds 3.1.1: 4.1.0-1.
#[test]
fn mqtt_311_3_1_2_4_a_session_of_3_1_1_lives_as_long_as_any_may() {
    let mut stage = Stage::new(Limits {
        session_expiry_s_max: 60,
        ..Limits::default()
    });
    let (client, _) = connects(&mut stage, on(V311, 0));
    disconnect(&mut stage, client, None);
    stage.wait(59_999);
    assert_eq!(stage.statistic("mqtt_sessions"), 1);
    stage.wait(1);
    assert_eq!(stage.statistic("mqtt_sessions"), 0);
}

#[test]
fn mqtt_3_14_2_2_2_disconnect_changes_the_expiry_within_the_bound() {
    for (asked_s, lives_s) in [(10, 10), (0, 0), (3_600, 3_600), (1 << 30, 14 * 86_400)] {
        let mut stage = Stage::default();
        let (client, _) = connects(&mut stage, on(V5, 300));
        disconnect(&mut stage, client, Some(asked_s));
        assert_eq!(stage.hears(client), ["closed: client_disconnect"]);
        if lives_s > 0 {
            stage.wait(lives_s * 1000 - 1);
            assert_eq!(stage.statistic("mqtt_sessions"), 1, "{asked_s}");
            stage.wait(1);
        }
        assert_eq!(stage.statistic("mqtt_sessions"), 0, "{asked_s}");
    }
}

#[test]
fn mqtt_3_14_2_2_2_what_connect_set_to_zero_stays_zero() {
    let mut stage = Stage::default();
    let (client, _) = connects(&mut stage, on(V5, 0));
    disconnect(&mut stage, client, Some(3_600));
    assert_eq!(
        stage.hears(client),
        ["DISCONNECT 0x82", "closed: protocol_error"]
    );
    assert_eq!(stage.statistic("mqtt_sessions"), 0);
}

/// Holds 5.0: 3.1.3-2, 3.1.4-3, 3.1.4-4.
#[test]
fn mqtt_3_1_4_3_a_take_over_keeps_the_session_unless_the_start_is_clean() {
    let mut stage = Stage::default();
    let (old, _) = connects(&mut stage, on(V5, 60));
    stage.subscribe(old, "t", QOS_1);
    let (new, heard) = connects(&mut stage, on(V311, 0));
    assert_eq!(heard, ["CONNACK 0x00 present"]);
    assert_eq!(stage.hears(old), ["DISCONNECT 0x8e", "closed: taken_over"]);
    stage.publish(new, "t", QOS_1, 1, "x");
    stage.hang_up(old);
    assert_eq!(stage.hears(new), ["PUBLISH t qos 1 id 1: x", "PUBACK 1"]);
    let clean = Connect {
        clean_start: true,
        ..on(V5, 60)
    };
    let (last, heard) = connects(&mut stage, clean);
    assert_eq!(heard, ["CONNACK 0x00"]);
    assert_eq!(stage.hears(new), ["closed: taken_over"]);
    stage.publish(last, "t", QOS_1, 1, "x");
    assert_eq!(stage.hears(last), ["PUBACK 1 0x10"]);
    assert_eq!(stage.statistic("mqtt_takeovers_total"), 2);
}

/// Bug 8 of other brokers: whichever of the two ends is told last, the session lives.
#[test]
fn a_late_end_of_an_old_connection_never_ends_the_session_that_went_on() {
    let mut stage = Stage::default();
    let (mut old, _) = connects(&mut stage, on(V5, 60));
    stage.subscribe(old, "t", QOS_1);
    for round in 0..1_000_u16 {
        if round % 3 == 0 {
            stage.hang_up(old);
        }
        let (new, heard) = connects(&mut stage, on(V5, 60));
        assert_eq!(heard, ["CONNACK 0x00 present"], "{round}");
        if round % 3 == 1 {
            stage.hang_up(old);
        }
        stage.publish(new, "t", QOS_0, 0, "still here");
        assert_eq!(stage.hears(new), ["PUBLISH t qos 0: still here"], "{round}");
        old = new;
    }
}

/// Holds 5.0: 3.2.2-6.
#[test]
fn mqtt_3_2_2_3_a_session_that_policy_refuses_is_left_alone() {
    let mut stage = Stage::default();
    let (client, _) = connects(&mut stage, on(V5, 60));
    stage.hang_up(client);
    let stranger = stage.asks(Connect {
        clean_start: true,
        ..on(V5, 60)
    });
    stage.decide(0x87);
    assert_eq!(stage.hears(stranger), ["CONNACK 0x87", "closed: refused"]);
    let (_, heard) = connects(&mut stage, on(V5, 60));
    assert_eq!(heard, ["CONNACK 0x00 present"]);
}

#[test]
fn what_waits_for_a_client_that_is_away_is_bounded_in_messages_and_in_bytes() {
    let full = "mqtt_messages_dropped_total{reason=\"queue_full\"}";
    for (messages_max, bytes_max) in [(3, 1 << 20), (1_000, 3 * 1_200)] {
        let mut stage = Stage::new(Limits {
            queued_messages_max: messages_max,
            queued_bytes_max: bytes_max,
            ..Limits::default()
        });
        let (client, _) = connects(&mut stage, on(V5, 60));
        stage.subscribe(client, "t", QOS_1);
        stage.hang_up(client);
        let publisher = stage.client(V5, "publisher");
        for packet_id in 1..=5 {
            let payload = format!("{packet_id}{}", "x".repeat(999));
            stage.publish(publisher, "t", QOS_1, packet_id, &payload);
        }
        assert_eq!(stage.hears(publisher).len(), 5, "each is acknowledged");
        assert_eq!(stage.statistic(full), 2);
        let (_, heard) = connects(&mut stage, on(V5, 60));
        assert_eq!(heard.len(), 4, "the oldest were kept");
    }
}

/// Holds 5.0: 3.3.2-5, 3.3.2-6.
#[test]
fn mqtt_3_3_2_3_3_what_expired_while_the_client_was_away_is_not_sent() {
    let mut stage = Stage::default();
    let (client, _) = connects(&mut stage, on(V5, 60));
    stage.subscribe(client, "t", QOS_1);
    stage.hang_up(client);
    let publisher = stage.client(V5, "publisher");
    for (packet_id, seconds) in [(1, 3), (2, 10)] {
        let properties = PublishProperties {
            message_expiry: Some(seconds),
            ..PublishProperties::default()
        };
        stage.publish_with(publisher, "t", QOS_1, packet_id, "x", properties);
    }
    stage.wait(4_000);
    let (_, heard) = connects(&mut stage, on(V5, 60));
    assert_eq!(
        heard,
        ["CONNACK 0x00 present", "PUBLISH t qos 1 id 1: x expiry 6"]
    );
}

/// Holds 5.0: 3.1.2-24, 3.1.2-25.
#[test]
fn mqtt_3_1_2_11_4_what_the_new_connection_cannot_read_is_dropped_as_if_sent() {
    let mut stage = Stage::default();
    let (client, _) = connects(&mut stage, on(V5, 60));
    stage.subscribe(client, "t", QOS_1);
    let publisher = stage.client(V5, "publisher");
    stage.publish(publisher, "t", QOS_1, 1, &"x".repeat(100));
    assert_eq!(stage.hears(client).len(), 1);
    stage.hang_up(client);
    stage.publish(publisher, "t", QOS_1, 2, &"x".repeat(100));
    stage.publish(publisher, "t", QOS_1, 3, "small");
    let (_, heard) = connects(
        &mut stage,
        Connect {
            maximum_packet_size: Some(50),
            ..on(V5, 60)
        },
    );
    assert_eq!(
        heard,
        ["CONNACK 0x00 present", "PUBLISH t qos 1 id 3: small"]
    );
    assert_eq!(stage.statistic("mqtt_outbound_in_flight"), 1);
}

#[test]
fn what_was_on_its_way_to_the_disk_is_delivered_to_who_is_away_by_then() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
    let (client, _) = connects(&mut stage, on(V5, 60));
    stage.subscribe(client, "t", QOS_1);
    stage.publish(client, "t", QOS_1, 7, "x");
    stage.hang_up(client);
    stage.durable(true);
    let (_, heard) = connects(&mut stage, on(V5, 60));
    assert_eq!(
        heard,
        ["CONNACK 0x00 present", "PUBLISH t qos 1 id 1: x"],
        "and no PUBACK of another connection's packet id"
    );
}

#[test]
fn a_client_that_comes_back_is_sent_no_more_than_its_outbound_bound_at_once() {
    let mut stage = Stage::new(Limits {
        outbound_bytes_max: 10_000,
        ..Limits::default()
    });
    let (client, _) = connects(&mut stage, on(V5, 60));
    stage.subscribe(client, "t", QOS_1);
    stage.hang_up(client);
    let publisher = stage.client(V5, "publisher");
    for packet_id in 1..=100 {
        stage.publish(publisher, "t", QOS_1, packet_id, &"x".repeat(994));
    }
    let client = stage.asks(on(V5, 60));
    stage.credit(client, 0);
    stage.decide(0);
    let waiting = stage.statistic("mqtt_outbound_bytes");
    assert!((9_000..11_100).contains(&waiting), "{waiting}");
    stage.credit(client, 3_000);
    stage.credit(client, usize::MAX);
    assert_eq!(stage.hears(client).len(), 101);
}
