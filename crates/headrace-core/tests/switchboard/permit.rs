//! What clients may do, under rules: when they come, while they are here, and when the rules
//! change under them.

use std::sync::Arc;

use headrace_core::access::{Draft, Principal, Rules};
use headrace_core::hash::Key;
use headrace_core::mqtt::packet::Connect;
use headrace_core::switchboard::{Access, Users, Verdict};

use super::stage::*;

fn list(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// `+publish,will a/# b`: allowed, or with `-` denied. `-subscribe@ann a`: what is about a user;
/// `-subscribe@10.0.0.0/8 a`: about addresses.
pub fn access(lines: &[&str]) -> Access {
    let mut rules = Rules::new(false);
    for line in lines {
        let (what, topics) = line[1..].split_once(' ').unwrap_or((&line[1..], ""));
        let (actions, whom) = what.split_once('@').unwrap_or((what, ""));
        let words = |text: &str, by: char| {
            let words = text.split(by).filter(|word| !word.is_empty());
            list(&words.collect::<Vec<_>>())
        };
        let (users, addresses) = if whom.contains('/') {
            ("", whom)
        } else {
            (whom, "")
        };
        let draft = Draft {
            allows: line.starts_with('+'),
            actions: &words(actions, ','),
            users: &words(users, ','),
            addresses: &words(addresses, ','),
            topics: &words(topics, ' '),
            ..Draft::default()
        };
        rules.add(&draft).unwrap();
    }
    Access {
        rules: Arc::new(rules),
        lets_anonymous: true,
        ..Access::default()
    }
}

pub fn controlled(lines: &[&str]) -> Stage {
    let mut stage = Stage::default();
    control(&mut stage, Some(access(lines)), &[]);
    stage
}

pub fn control(stage: &mut Stage, access: Option<Access>, names: &[&str]) {
    let mut users = Users::with_hasher(Key(1, 2));
    for name in names {
        users.insert((*name).into(), Box::default());
    }
    stage.switchboard.control(access, &users, stage.now);
    stage.run();
}

/// Lets in who asks, as a user.
fn decide_for(stage: &mut Stage, name: &str, address: Option<&str>) {
    let verdict = Verdict {
        principal: Some(Principal {
            username: Some(name.into()),
            address: address.map(|address| address.parse().unwrap()),
            ..Principal::default()
        }),
        ..Verdict::default()
    };
    for asked in std::mem::take(&mut stage.decisions) {
        let now = stage.now;
        stage
            .switchboard
            .decided(asked.request, verdict.clone(), now)
            .unwrap();
    }
    stage.run();
}

/// Keeps its session; what CONNACK says.
pub fn kept(stage: &mut Stage, client_id: &str, name: &str) -> (u64, String) {
    let (client, mut heard) = kept_from(stage, client_id, name, None);
    (client, heard.remove(0))
}

/// Keeps its session; what it is sent at once.
pub fn kept_from(
    stage: &mut Stage,
    client_id: &str,
    name: &str,
    address: Option<&str>,
) -> (u64, Vec<String>) {
    let client = stage.asks(Connect {
        client_id,
        session_expiry_s: Some(600),
        ..Connect::new(V5)
    });
    decide_for(stage, name, address);
    (client, stage.hears(client))
}

#[test]
fn mqtt_3_4_2_1_a_publish_that_is_denied_is_answered_and_goes_nowhere() {
    let mut stage = controlled(&["+publish a", "+subscribe #"]);
    let reader = stage.client(V5, "reader");
    stage.subscribe(reader, "#", QOS_1);
    for version in [V311, V5] {
        let client = stage.client(version, "writer");
        stage.publish(client, "b", QOS_0, 0, "no");
        stage.publish(client, "b", QOS_1, 1, "no");
        stage.publish(client, "b", QOS_2, 2, "no");
        stage.publish(client, "a", QOS_1, 3, "yes");
        let expected = match version {
            V5 => ["PUBACK 1 0x87", "PUBREC 2 0x87", "PUBACK 3"],
            V311 => ["PUBACK 1", "PUBREC 2", "PUBACK 3"],
        };
        assert_eq!(stage.hears(client), expected);
        assert_eq!(stage.hears_ids(reader).len(), 1);
    }
    let dropped = "mqtt_messages_dropped_total{reason=\"not_authorized\"}";
    assert_eq!(stage.statistic(dropped), 6);
}

#[test]
fn a_setting_ends_the_connection_of_who_publishes_where_it_may_not() {
    let mut stage = Stage::default();
    let access = Access {
        closes: true,
        ..access(&["+publish a"])
    };
    control(&mut stage, Some(access), &[]);
    for (version, expected) in [
        (V5, &["DISCONNECT 0x87", "closed: not_authorized"][..]),
        (V311, &["closed: not_authorized"]),
    ] {
        let client = stage.client(version, "writer");
        stage.publish(client, "b", QOS_0, 0, "no");
        assert_eq!(stage.hears(client), expected);
    }
}

/// Refusals of 5.0 clients, with the codes that they are told; 3.1.1 has but one word for each.
#[test]
fn mqtt_3_4_2_1_a_refusal_need_not_say_that_it_is_about_rights() {
    let silent = || Access {
        is_silent: true,
        ..access(&["+subscribe,will a", "-connect"])
    };
    let told = |version| {
        let mut stage = Stage::default();
        let client = stage.client(version, "c");
        stage.subscribe(client, "b", QOS_0);
        let stays = Access {
            is_silent: true,
            ..access(&["+subscribe a b"])
        };
        control(&mut stage, Some(stays), &[]);
        stage.publish(client, "b", QOS_1, 1, "no");
        stage.publish(client, "b", QOS_2, 2, "no");
        stage.subscribe_with(client, request("c", QOS_1));
        control(&mut stage, Some(silent()), &[]);
        let mut heard = stage.hears(client);
        let late = stage.asks(plain(version));
        stage.decide(0);
        heard.extend(stage.hears(late));
        heard
    };
    let expected = [
        "PUBACK 1 0x80",
        "PUBREC 2 0x80",
        "SUBACK 1 [0x80]",
        "DISCONNECT 0x80",
        "closed: not_authorized",
        "CONNACK 0x80",
        "closed: refused",
    ];
    assert_eq!(told(V5), expected);
    let expected = [
        "PUBACK 1",
        "PUBREC 2",
        "SUBACK 1 [0x80]",
        "closed: not_authorized",
        "CONNACK 0x87",
        "closed: refused",
    ];
    assert_eq!(told(V311), expected);
}

#[test]
fn mqtt_3_9_3_a_subscription_that_reaches_too_far_is_refused() {
    let mut stage = controlled(&["-subscribe a/secret", "+subscribe a/#"]);
    for (version, code) in [(V5, "0x87"), (V311, "0x80")] {
        let client = stage.client(version, "c");
        for filter in ["#", "+/open", "a/secret", "$share/g/a/secret", "$SYS/#"] {
            stage.subscribe_with(client, request(filter, QOS_1));
            let expected = format!("SUBACK 1 [{code}]");
            assert_eq!(stage.hears(client), [expected], "{filter}");
        }
        for filter in ["a/open", "$share/g/a/open", "a/+/x", "a/#", "$share/g/a/+"] {
            stage.subscribe(client, filter, QOS_1);
        }
    }
    let refused = "mqtt_subscriptions_refused_total{reason=\"not_authorized\"}";
    assert_eq!(stage.statistic(refused), 10);
}

#[test]
fn mqtt_3_1_2_5_a_will_is_held_against_the_rules_when_its_client_comes() {
    for (lines, code) in [
        (&["+will w"][..], "CONNACK 0x00"),
        (&["+publish w"], "CONNACK 0x87"),
        (&["-connect", "+will w"], "CONNACK 0x87"),
        (&[], "CONNACK 0x87"),
    ] {
        let mut stage = controlled(lines);
        let client = stage.asks(Connect {
            client_id: "c",
            will: Some(Will {
                topic: "w",
                payload: b"gone",
                ..Will::default()
            }),
            ..plain(V5)
        });
        stage.decide(0);
        assert_eq!(stage.hears(client)[0], code, "{lines:?}");
    }
}

#[test]
fn a_session_belongs_to_the_user_that_began_it() {
    let mut stage = controlled(&["+subscribe #", "+publish #"]);
    let (client, _) = kept(&mut stage, "c", "ann");
    stage.subscribe(client, "t", QOS_1);
    let (thief, answer) = kept(&mut stage, "c", "bob");
    assert_eq!(answer, "CONNACK 0x87");
    stage.hang_up(thief);
    stage.hang_up(client);
    assert_eq!(kept(&mut stage, "c", "bob").1, "CONNACK 0x87");
    assert_eq!(kept(&mut stage, "c", "ann").1, "CONNACK 0x00 present");
}

#[test]
fn new_rules_hold_for_clients_that_are_here() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "c");
    let other = stage.client(V5, "other");
    stage.subscribe(client, "a", QOS_0);
    stage.subscribe(client, "$share/g/b", QOS_0);
    stage.subscribe(other, "b", QOS_0);
    control(&mut stage, Some(access(&["+subscribe b"])), &[]);
    let expected = ["DISCONNECT 0x87", "closed: not_authorized"];
    assert_eq!(
        stage.hears(client),
        expected,
        "its subscription to a is gone"
    );
    stage.publish(other, "b", QOS_1, 1, "no");
    assert_eq!(stage.hears(other), ["PUBACK 1 0x87"]);
    control(&mut stage, None, &[]);
    stage.publish(other, "b", QOS_0, 0, "yes");
    assert_eq!(stage.hears(other), ["PUBLISH b qos 0: yes"]);
}

#[test]
fn who_is_no_user_any_more_loses_session_and_connection() {
    let mut stage = Stage::default();
    let rules = || Access {
        lets_anonymous: false,
        ..access(&["+publish,subscribe,will #"])
    };
    control(&mut stage, Some(rules()), &["ann", "bob", "eve"]);
    let (here, _) = kept(&mut stage, "here", "ann");
    let (away, _) = kept(&mut stage, "away", "bob");
    let (stays, _) = kept(&mut stage, "stays", "eve");
    stage.subscribe(away, "t", QOS_1);
    stage.hang_up(away);
    assert_eq!(stage.statistic("mqtt_sessions"), 3);
    control(&mut stage, Some(rules()), &["eve"]);
    let expected = ["DISCONNECT 0x87", "closed: not_authorized"];
    assert_eq!(stage.hears(here), expected);
    assert_eq!(stage.statistic("mqtt_sessions"), 1);
    stage.publish(stays, "t", QOS_1, 1, "x");
    assert_eq!(stage.hears(stays), ["PUBACK 1 0x10"]);
}

#[test]
fn a_will_that_new_rules_forbid_is_not_published() {
    let mut stage = controlled(&["+will,subscribe w"]);
    let reader = stage.client(V5, "reader");
    stage.subscribe(reader, "w", QOS_0);
    let leave = |stage: &mut Stage| {
        let client = stage.client_with(Connect {
            client_id: "c",
            will: Some(Will {
                topic: "w",
                payload: b"gone",
                ..Will::default()
            }),
            ..plain(V5)
        });
        stage.hears(client);
        client
    };
    let client = leave(&mut stage);
    stage.hang_up(client);
    assert_eq!(stage.hears(reader), ["PUBLISH w qos 0: gone"]);
    let client = leave(&mut stage);
    control(&mut stage, Some(access(&["+subscribe w"])), &[]);
    stage.hang_up(client);
    assert_eq!(stage.hears(reader).len(), 0);
}
