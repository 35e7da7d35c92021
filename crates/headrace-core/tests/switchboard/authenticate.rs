//! Enhanced authentication (MQTT 5.0 3.15, 4.12), with a policy that speaks one method: it wants
//! the word back that it gave, twice over.

use headrace_core::mqtt::packet::{Auth, Connect, Disconnect, Packet};
use headrace_core::switchboard::{Asks, Error, Verdict};

use super::stage::*;

const METHOD: &str = "ECHO";

/// Policy's answer to all that it was asked.
fn decide(stage: &mut Stage, reason_code: u8, data: &str) {
    for asked in std::mem::take(&mut stage.decisions) {
        let verdict = Verdict {
            reason_code,
            auth_data: Some(data.as_bytes().to_vec()),
            principal: None,
        };
        let decided = stage.switchboard.decided(asked.request, verdict, stage.now);
        decided.unwrap();
    }
    stage.run();
}

fn asks(stage: &mut Stage) -> u64 {
    stage.asks(Connect {
        client_id: "a",
        authentication_method: Some(METHOD),
        authentication_data: Some(b"hello"),
        ..plain(V5)
    })
}

fn auth(stage: &mut Stage, client: u64, reason_code: u8, method: &str, data: &str) {
    let auth = Auth {
        reason_code,
        method: Some(method),
        data: Some(data.as_bytes()),
        ..Auth::default()
    };
    stage.send(client, &Packet::Auth(auth));
}

/// A client that has passed both steps.
fn authenticated(stage: &mut Stage) -> u64 {
    let client = asks(stage);
    decide(stage, 0x18, "one");
    auth(stage, client, 0x18, METHOD, "one");
    decide(stage, 0, "welcome");
    let expected = ["AUTH 0x18 ECHO one", "CONNACK 0x00 ECHO welcome"];
    assert_eq!(stage.hears(client), expected);
    client
}

/// Holds 5.0: 4.12.0-2, 4.12.0-5.
#[test]
fn mqtt_4_12_0_2_policy_challenges_as_often_as_it_likes() {
    let mut stage = Stage::default();
    let client = asks(&mut stage);
    let asked = &stage.decisions[0];
    assert_eq!(asked.asks, Asks::Connect);
    assert_eq!(asked.auth_method.as_deref(), Some(METHOD));
    assert_eq!(asked.auth_data.as_deref(), Some(&b"hello"[..]));
    for step in ["one", "two", "three"] {
        decide(&mut stage, 0x18, step);
        assert_eq!(stage.hears(client), [format!("AUTH 0x18 ECHO {step}")]);
        auth(&mut stage, client, 0x18, METHOD, step);
        let asked = &stage.decisions[0];
        assert_eq!((asked.asks, asked.connection), (Asks::Continue, client));
        assert_eq!(asked.client_id, "a");
        assert_eq!(asked.auth_data.as_deref(), Some(step.as_bytes()));
    }
    decide(&mut stage, 0, "done");
    assert_eq!(stage.hears(client), ["CONNACK 0x00 ECHO done"]);
    stage.send(client, &Packet::Pingreq);
    assert_eq!(stage.hears(client), ["PINGRESP"]);
}

/// Holds 5.0: 4.12.0-1, 4.12.0-4.
#[test]
fn mqtt_4_12_0_4_policy_refuses_at_any_step() {
    for steps in [0, 1, 2] {
        for code in [0x8C, 0x87] {
            let mut stage = Stage::default();
            let client = asks(&mut stage);
            for _ in 0..steps {
                decide(&mut stage, 0x18, "more");
                auth(&mut stage, client, 0x18, METHOD, "no");
            }
            stage.hears(client);
            decide(&mut stage, code, "");
            let expected = [format!("CONNACK {code:#04x}"), "closed: refused".into()];
            assert_eq!(stage.hears(client), expected);
            assert_eq!(stage.statistic("mqtt_sessions"), 0);
        }
    }
}

/// Holds 5.0: 4.12.0-3, 4.12.0-5.
#[test]
fn mqtt_4_12_0_5_another_method_or_reason_ends_a_connect() {
    for (reason_code, method) in [(0x18, "OTHER"), (0x19, METHOD), (0x00, METHOD)] {
        let mut stage = Stage::default();
        let client = asks(&mut stage);
        decide(&mut stage, 0x18, "one");
        auth(&mut stage, client, reason_code, method, "one");
        assert_eq!(
            stage.hears(client)[1..],
            ["CONNACK 0x82", "closed: refused"]
        );
        assert_eq!(stage.decisions.len(), 0);
    }
}

#[test]
fn what_comes_behind_an_auth_waits_for_the_decision() {
    let mut stage = Stage::default();
    let client = asks(&mut stage);
    decide(&mut stage, 0x18, "one");
    auth(&mut stage, client, 0x18, METHOD, "one");
    stage.send(client, &Packet::Pingreq);
    assert_eq!(stage.hears(client), ["AUTH 0x18 ECHO one"]);
    decide(&mut stage, 0, "");
    assert_eq!(stage.hears(client), ["CONNACK 0x00 ECHO ", "PINGRESP"]);
}

#[test]
fn who_leaves_or_is_too_slow_in_the_middle_is_forgotten() {
    let mut stage = Stage::default();
    let gone = asks(&mut stage);
    decide(&mut stage, 0x18, "one");
    stage.hang_up(gone);
    let slow = asks(&mut stage);
    decide(&mut stage, 0x18, "one");
    stage.wait(9_999);
    auth(&mut stage, slow, 0x18, METHOD, "one");
    stage.wait(1);
    assert_eq!(stage.hears(slow)[1..], ["closed: connect_timeout"]);
    decide(&mut stage, 0, "");
    assert_eq!(stage.hears(slow), [""; 0]);
    assert_eq!(stage.statistic("mqtt_sessions"), 0);
}

/// Holds 5.0: 4.12.1-1.
#[test]
fn mqtt_4_12_1_an_open_connection_authenticates_again_and_goes_on_meanwhile() {
    let mut stage = Stage::default();
    let client = authenticated(&mut stage);
    for _ in 0..2 {
        auth(&mut stage, client, 0x19, METHOD, "again");
        let asked = &stage.decisions[0];
        assert_eq!(asked.asks, Asks::Reauthenticate);
        assert_eq!((&*asked.client_id, asked.connection), ("a", client));
        stage.send(client, &Packet::Pingreq);
        decide(&mut stage, 0x18, "two");
        stage.send(client, &Packet::Pingreq);
        auth(&mut stage, client, 0x18, METHOD, "two");
        assert_eq!(stage.decisions[0].asks, Asks::Continue);
        decide(&mut stage, 0, "fine");
        let expected = [
            "PINGRESP",
            "AUTH 0x18 ECHO two",
            "PINGRESP",
            "AUTH 0x00 ECHO fine",
        ];
        assert_eq!(stage.hears(client), expected);
    }
}

/// Holds 5.0: 4.12.1-2.
#[test]
fn mqtt_4_12_1_2_who_fails_to_authenticate_again_is_disconnected() {
    let mut stage = Stage::default();
    let client = authenticated(&mut stage);
    auth(&mut stage, client, 0x19, METHOD, "again");
    decide(&mut stage, 0x87, "");
    assert_eq!(
        stage.hears(client),
        ["DISCONNECT 0x87", "closed: not_authorized"]
    );
}

/// Holds 5.0: 4.12.1-1.
#[test]
fn mqtt_4_12_1_1_another_method_or_turn_is_a_protocol_error() {
    type Act = fn(&mut Stage, u64);
    let acts: [(&str, Act); 5] = [
        ("another method", |stage, client| {
            auth(stage, client, 0x19, "OTHER", "");
        }),
        ("a step without a challenge", |stage, client| {
            auth(stage, client, 0x18, METHOD, "");
        }),
        ("a success of its own", |stage, client| {
            auth(stage, client, 0x00, METHOD, "");
        }),
        ("once more before the decision", |stage, client| {
            auth(stage, client, 0x19, METHOD, "");
            auth(stage, client, 0x19, METHOD, "");
        }),
        ("anew after a challenge", |stage, client| {
            auth(stage, client, 0x19, METHOD, "");
            decide(stage, 0x18, "");
            stage.hears(client);
            auth(stage, client, 0x19, METHOD, "");
        }),
    ];
    for (name, act) in acts {
        let mut stage = Stage::default();
        let client = authenticated(&mut stage);
        act(&mut stage, client);
        let expected = ["DISCONNECT 0x82", "closed: protocol_error"];
        assert_eq!(stage.hears(client), expected, "{name}");
        decide(&mut stage, 0, "too late");
        assert_eq!(stage.hears(client), [""; 0], "{name}");
    }
}

/// Holds 5.0: 4.12.0-6, 4.12.0-7.
#[test]
fn mqtt_4_12_0_7_without_a_method_in_connect_there_is_no_auth() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    auth(&mut stage, client, 0x19, METHOD, "");
    assert_eq!(
        stage.hears(client),
        ["DISCONNECT 0x82", "closed: protocol_error"]
    );
    let plain = stage.asks(Connect {
        client_id: "b",
        ..plain(V5)
    });
    let request = stage.decisions[0].request;
    let challenged = stage.switchboard.decided(request, 0x18, stage.now);
    assert!(matches!(challenged, Err(Error::Invalid(_))));
    stage.decide(0);
    assert_eq!(stage.hears(plain), ["CONNACK 0x00"]);
    stage.send(plain, &Packet::Disconnect(Disconnect::default()));
    assert_eq!(stage.hears(plain), ["closed: client_disconnect"]);
}
