//! What the broker says of itself below `$SYS/` (MQTT 5.0 4.7.2).

use headrace_core::switchboard::Limits;

use super::stage::*;

fn announce(stage: &mut Stage, topic: &str, payload: &str) {
    let now = stage.now;
    let said = stage.switchboard.announce(topic, payload.as_bytes(), now);
    said.unwrap();
    stage.run();
}

#[test]
fn it_is_heard_by_who_has_subscribed_and_kept_for_who_will() {
    let mut stage = Stage::default();
    let early = stage.client(V5, "early");
    stage.subscribe(early, "$SYS/broker/#", QOS_1);
    announce(&mut stage, "$SYS/broker/uptime", "1 seconds");
    announce(&mut stage, "$SYS/broker/uptime", "2 seconds");
    assert_eq!(
        stage.hears(early),
        [
            "PUBLISH $SYS/broker/uptime qos 0: 1 seconds",
            "PUBLISH $SYS/broker/uptime qos 0: 2 seconds"
        ]
    );
    let late = stage.client(V311, "late");
    stage.subscribe_with(late, request("$SYS/+/uptime", QOS_1));
    let heard = [
        "SUBACK 1 [0x01]",
        "PUBLISH $SYS/broker/uptime qos 0 retain: 2 seconds",
    ];
    assert_eq!(stage.hears(late), heard);
    announce(&mut stage, "$SYS/broker/uptime", "");
    let taken_back = ["PUBLISH $SYS/broker/uptime qos 0: "];
    assert_eq!(stage.hears(late), taken_back);
    stage.subscribe(late, "$SYS/#", QOS_0);
    assert_eq!(stage.hears(late), [""; 0]);
}

/// Holds 5.0: 4.7.2-1.
/// Holds 3.1.1: 4.7.2-1.
#[test]
fn mqtt_4_7_2_1_no_leading_wildcard_brings_it() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    announce(&mut stage, "$SYS/broker/uptime", "1 seconds");
    for filter in ["#", "+/broker/uptime", "+/#", "$share/g/#"] {
        stage.subscribe(client, filter, QOS_0);
    }
    announce(&mut stage, "$SYS/broker/uptime", "2 seconds");
    assert_eq!(stage.hears(client), [""; 0]);
}

#[test]
fn it_takes_no_room_of_what_clients_retain_and_no_stream_stores_it() {
    let mut stage = Stage::new(Limits {
        retained_messages_max: 1,
        ..Limits::default()
    });
    stage.switchboard.bind(1, 1, &["$SYS/#"], "topic").unwrap();
    announce(&mut stage, "$SYS/broker/uptime", "1 seconds");
    announce(&mut stage, "$SYS/broker/version", "headrace");
    let client = stage.client(V5, "a");
    stage.retain(client, "t", QOS_1, "x");
    assert_eq!(stage.hears(client), ["PUBACK 9 0x10"]);
    assert_eq!(stage.statistic("mqtt_retained_messages"), 1);
    assert!(stage.appends.is_empty());
}

#[test]
fn it_is_listed_by_its_own_filters_and_never_deleted() {
    let mut stage = Stage::default();
    announce(&mut stage, "$SYS/broker/uptime", "1 seconds");
    let now = stage.now;
    let listed = |filter| {
        let page = stage.switchboard.retained(filter, "", 10, now).unwrap();
        page.found.len()
    };
    assert_eq!([listed("#"), listed("$SYS/#")], [0, 1]);
    let deleted = stage
        .switchboard
        .delete_retained("$SYS/#", "", 1, stage.now);
    assert!(deleted
        .unwrap_err()
        .to_string()
        .contains("the broker keeps"));
}

#[test]
fn only_topics_below_it_are_announced() {
    let mut stage = Stage::default();
    let now = stage.now;
    for topic in ["t", "$SYS", "$SYS/#", "$other/t"] {
        assert!(stage.switchboard.announce(topic, b"x", now).is_err());
    }
}
