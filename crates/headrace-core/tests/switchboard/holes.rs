//! Subscriptions that reach what rules deny: all else comes, and of that nothing, whichever way it
//! would have come.

use headrace_core::mqtt::packet::Connect;
use headrace_core::session::Ending;
use headrace_core::switchboard::{Limits, Strategy, BATCH_BYTES_MAX};

use super::permit::{access, control, controlled, kept, kept_from};
use super::stage::*;

/// Everybody may have all but the secrets, and bob those too.
const RULES: [&str; 4] = [
    "+subscribe@bob #",
    "-subscribe secret/# +/secret",
    "+subscribe #",
    "+publish,will #",
];

#[test]
fn what_a_rule_denies_of_a_subscription_is_left_out() {
    let mut stage = controlled(&RULES);
    for (version, qos) in [(V311, QOS_0), (V5, QOS_1), (V5, QOS_2)] {
        let reader = stage.client(version, "reader");
        let writer = stage.client(V5, "writer");
        stage.subscribe(reader, "#", qos);
        stage.subscribe(reader, "a/#", qos);
        stage.publish(writer, "secret/x", QOS_1, 1, "no");
        assert_eq!(stage.hears(writer), ["PUBACK 1 0x10"], "nobody hears it");
        stage.publish(writer, "a/secret", QOS_0, 0, "no");
        stage.publish(writer, "a/open", qos, 2, "yes");
        let heard = stage.hears(reader);
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert!(heard[0].contains("a/open"), "{heard:?}");
        stage.hang_up(reader);
        stage.hang_up(writer);
    }
}

#[test]
fn a_client_subscribes_anew_and_unsubscribes_from_what_has_holes() {
    let mut stage = controlled(&RULES);
    let reader = stage.client(V5, "reader");
    for filter in ["#", "+/+", "#", "a/open", "a/open"] {
        stage.subscribe(reader, filter, QOS_0);
    }
    stage.unsubscribe(reader, &["#", "+/+", "none"]);
    assert_eq!(stage.hears(reader), ["UNSUBACK 2 [0x00 0x00 0x11]"]);
    stage.publish(reader, "a/secret", QOS_0, 0, "no");
    stage.publish(reader, "a/open", QOS_0, 0, "yes");
    assert_eq!(stage.hears(reader), ["PUBLISH a/open qos 0: yes"]);
}

#[test]
fn mqtt_3_3_1_3_what_is_retained_and_denied_is_not_replayed() {
    let mut stage = controlled(&RULES);
    let writer = stage.client(V5, "writer");
    for topic in ["a/open", "a/secret", "b", "secret/x"] {
        stage.retain(writer, topic, QOS_0, "kept");
    }
    let reader = stage.client(V311, "reader");
    stage.subscribe_with(reader, request("#", QOS_0));
    let expected = [
        "SUBACK 1 [0x00]",
        "PUBLISH a/open qos 0 retain: kept",
        "PUBLISH b qos 0 retain: kept",
    ];
    assert_eq!(stage.hears(reader), expected);
}

#[test]
fn mqtt_4_8_2_a_group_gives_a_message_to_a_member_that_may_have_it() {
    for strategy in [
        Strategy::RoundRobin,
        Strategy::Random,
        Strategy::Sticky,
        Strategy::HashTopic,
        Strategy::HashClient,
        Strategy::LeastInFlight,
    ] {
        let mut stage = Stage::new(Limits {
            shared_strategy: strategy,
            ..Limits::default()
        });
        control(&mut stage, Some(access(&RULES)), &["ann", "bob"]);
        let (ann, _) = kept(&mut stage, "ann", "ann");
        let (bob, _) = kept(&mut stage, "bob", "bob");
        let [writer, other] = ["writer", "other"].map(|name| kept(&mut stage, name, "ann").0);
        for member in [ann, bob] {
            stage.subscribe(member, "$share/g/#", QOS_1);
        }
        for number in 0..8 {
            stage.publish(writer, "secret/x", QOS_1, 10 + number, "for bob");
            stage.publish(other, &format!("open/{number}"), QOS_1, 30 + number, "any");
        }
        let (of_ann, of_bob) = (stage.hears(ann), stage.hears(bob));
        assert!(of_ann.iter().all(|line| line.contains("open")));
        let secrets = of_bob.iter().filter(|line| line.contains("secret"));
        assert_eq!(secrets.count(), 8, "{strategy:?}");
        assert_eq!(of_ann.len() + of_bob.len(), 16, "{strategy:?}");
        stage.hang_up(bob);
        // Nobody who is there may have what comes back, and it keeps nothing else from them.
        let denied = "mqtt_messages_dropped_total{reason=\"not_authorized\"}";
        assert_eq!(stage.statistic(denied), 8, "{strategy:?}");
        let before = stage.hears(ann).len();
        stage.publish(writer, "secret/x", QOS_1, 50, "for bob");
        stage.publish(other, "open/9", QOS_1, 51, "any");
        let heard = stage.hears(ann);
        assert_eq!(heard.len(), 1, "{strategy:?} {before}: {heard:?}");
    }
}

#[test]
fn what_a_group_has_waiting_is_held_to_rules_that_come_meanwhile() {
    let mut stage = controlled(&RULES);
    let member = stage.client_with(Connect {
        client_id: "member",
        receive_maximum: Some(1),
        ..plain(V5)
    });
    let writer = stage.client(V5, "writer");
    stage.subscribe(member, "$share/g/#", QOS_1);
    for (id, topic) in [(1, "first"), (2, "late/x"), (3, "last")] {
        stage.publish(writer, topic, QOS_1, id, "x");
    }
    assert_eq!(stage.hears(member), ["PUBLISH first qos 1 id 1: x"]);
    let more = [&["-subscribe late/#"][..], &RULES].concat();
    control(&mut stage, Some(access(&more)), &[]);
    stage.acknowledge(member, 1);
    assert_eq!(stage.hears(member), ["PUBLISH last qos 1 id 2: x"]);
}

#[test]
fn nothing_waits_for_a_group_of_which_no_member_may_have_it() {
    let mut stage = controlled(&RULES);
    let (member, _) = kept(&mut stage, "member", "ann");
    stage.subscribe(member, "$share/g/#", QOS_1);
    stage.hang_up(member);
    let (writer, _) = kept(&mut stage, "writer", "ann");
    stage.hears(writer);
    stage.publish(writer, "secret/x", QOS_1, 1, "no");
    stage.publish(writer, "open", QOS_1, 2, "x");
    assert_eq!(stage.hears(writer), ["PUBACK 1 0x10", "PUBACK 2"]);
    let (_, heard) = kept_from(&mut stage, "member", "ann", None);
    assert_eq!(heard[1..], ["PUBLISH open qos 1 id 1: x"]);
}

#[test]
fn what_is_denied_does_not_wait_for_a_client_that_is_away() {
    let mut stage = controlled(&RULES);
    let (reader, _) = kept(&mut stage, "reader", "ann");
    let (writer, _) = kept(&mut stage, "writer", "ann");
    stage.subscribe(reader, "#", QOS_1);
    stage.hang_up(reader);
    for (id, topic) in [(1, "a/secret"), (2, "a/open"), (3, "late/x")] {
        stage.publish(writer, topic, QOS_1, id, "x");
    }
    let more = [&["-subscribe late/#"][..], &RULES].concat();
    control(&mut stage, Some(access(&more)), &["ann"]);
    let (_, heard) = kept_from(&mut stage, "reader", "ann", None);
    assert_eq!(heard[1..], ["PUBLISH a/open qos 1 id 1: x"]);
    let denied = "mqtt_messages_dropped_total{reason=\"not_authorized\"}";
    assert_eq!(stage.statistic(denied), 1, "what waited when it was denied");
}

#[test]
fn what_was_sent_before_it_was_denied_is_sent_again() {
    let mut stage = controlled(&RULES);
    let (reader, _) = kept(&mut stage, "reader", "ann");
    let (writer, _) = kept(&mut stage, "writer", "ann");
    stage.subscribe(reader, "#", QOS_1);
    stage.publish(writer, "late/x", QOS_1, 1, "x");
    assert_eq!(stage.hears(reader).len(), 1);
    stage.hang_up(reader);
    let more = [&["-subscribe late/#"][..], &RULES].concat();
    control(&mut stage, Some(access(&more)), &["ann"]);
    let (_, heard) = kept_from(&mut stage, "reader", "ann", None);
    assert_eq!(heard[1..], ["PUBLISH late/x qos 1 id 1 dup: x"]);
}

#[test]
fn a_message_that_waits_for_the_disk_is_held_to_rules_that_come_meanwhile() {
    let mut stage = controlled(&RULES);
    stage.switchboard.bind(9, 1, &["#"], "topic").unwrap();
    let (reader, _) = kept(&mut stage, "reader", "ann");
    let (writer, _) = kept(&mut stage, "writer", "ann");
    stage.subscribe(reader, "#", QOS_1);
    stage.hears(writer);
    stage.publish(writer, "late/x", QOS_1, 1, "x");
    let more = [&["-subscribe late/#"][..], &RULES].concat();
    control(&mut stage, Some(access(&more)), &["ann"]);
    stage.durable(true);
    assert_eq!(stage.hears(writer), ["PUBACK 1"]);
    assert_eq!(stage.hears(reader).len(), 0);
}

#[test]
fn new_rules_make_holes_and_close_them_and_end_nobody() {
    let open = || Some(access(&["+subscribe,publish #"]));
    let mut stage = Stage::default();
    let reader = stage.client(V5, "reader");
    let writer = stage.client(V5, "writer");
    stage.subscribe(reader, "+/x", QOS_0);
    stage.subscribe(reader, "$share/g/#", QOS_0);
    for (rules, count) in [
        (open(), 2),
        (Some(access(&RULES)), 0),
        (open(), 2),
        (Some(access(&RULES)), 0),
        (None, 2),
    ] {
        control(&mut stage, rules, &[]);
        stage.publish(writer, "secret/x", QOS_0, 0, "x");
        assert_eq!(stage.hears(reader).len(), count);
    }
}

#[test]
fn a_session_is_held_to_the_rules_of_where_its_client_comes_from() {
    let mut stage = controlled(&[
        "-subscribe@10.0.0.0/8 plant/secret",
        "+subscribe@10.0.0.0/8 plant/# open",
        "+subscribe open",
        "+publish #",
    ]);
    let (inside, _) = kept_from(&mut stage, "reader", "ann", Some("10.1.2.3"));
    stage.subscribe(inside, "plant/#", QOS_1);
    stage.subscribe(inside, "open", QOS_1);
    stage.hang_up(inside);
    let outside = Some("192.0.2.7");
    let (reader, answer) = kept_from(&mut stage, "reader", "ann", outside);
    assert_eq!(answer, ["CONNACK 0x00 present"]);
    let (writer, _) = kept(&mut stage, "writer", "ann");
    for topic in ["plant/pump", "open"] {
        stage.publish(writer, topic, QOS_0, 0, "x");
    }
    assert_eq!(stage.hears(reader), ["PUBLISH open qos 0: x"]);
}

#[test]
fn sessions_on_the_log_are_held_to_rules_that_come_meanwhile_and_after_a_restart() {
    let mut stage = controlled(&RULES);
    stage.switchboard.keep_sessions(1, 1 << 20, BATCH_BYTES_MAX);
    let (reader, _) = kept_from(&mut stage, "reader", "ann", None);
    let (writer, _) = kept_from(&mut stage, "writer", "ann", None);
    stage.subscribe_with(reader, request("#", QOS_1));
    stage.write_all(Ending::Stored);
    assert_eq!(stage.hears(reader), ["CONNACK 0x00", "SUBACK 1 [0x01]"]);
    stage.publish(writer, "late/x", QOS_1, 1, "waits for the log");
    let more = [&["-subscribe late/#"][..], &RULES].concat();
    control(&mut stage, Some(access(&more)), &["ann"]);
    stage.write_all(Ending::Stored);
    assert_eq!(stage.hears(reader).len(), 0);
    stage.hang_up(reader);
    for (id, topic) in [(2, "a/open"), (3, "b/open"), (4, "a/secret")] {
        stage.publish(writer, topic, QOS_1, id, "x");
    }
    stage.write_all(Ending::Stored);

    let mut again = Stage::default();
    again.switchboard.keep_sessions(1, 1 << 20, BATCH_BYTES_MAX);
    again.restore(&stage);
    let more = [&["-subscribe b/#"][..], &RULES].concat();
    control(&mut again, Some(access(&more)), &["ann"]);
    kept_from(&mut again, "writer", "ann", None);
    let (reader, _) = kept_from(&mut again, "reader", "ann", None);
    again.write_all(Ending::Stored);
    let expected = ["CONNACK 0x00 present", "PUBLISH a/open qos 1 id 1: x"];
    assert_eq!(again.hears(reader), expected);
}
