//! What becomes of the work of a shared subscription whose members come and go (MQTT 5.0 4.8.2).

use headrace_core::mqtt::packet::Connect;
use headrace_core::switchboard::Limits;

use super::stage::*;

/// A member that takes so many messages at a time.
fn member(stage: &mut Stage, client_id: &str, receive_maximum: u16, filter: &str) -> u64 {
    let member = stage.client_with(Connect {
        client_id,
        receive_maximum: Some(receive_maximum),
        ..plain(V5)
    });
    stage.subscribe(member, filter, QOS_1);
    member
}

fn payloads(stage: &mut Stage, client: u64) -> Vec<String> {
    let heard = stage.hears(client);
    let publishes = heard.iter().filter(|line| line.starts_with("PUBLISH"));
    let payload = |line: &String| line.rsplit(": ").next().unwrap().to_owned();
    publishes.map(payload).collect()
}

#[test]
fn what_a_member_that_unsubscribed_has_not_finished_is_not_lost_with_its_session() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let leaver = member(&mut stage, "leaver", 10, "$share/g/t");
    for number in 1..=3 {
        stage.publish(publisher, "t", QOS_1, number, &number.to_string());
    }
    assert_eq!(payloads(&mut stage, leaver), ["1", "2", "3"]);
    let stayer = member(&mut stage, "stayer", 10, "$share/g/t");
    stage.unsubscribe(leaver, &["$share/g/t"]);
    stage.hears(leaver);
    stage.acknowledge(leaver, 2);
    assert_eq!(payloads(&mut stage, stayer), [""; 0], "it may finish");
    stage.hang_up(leaver);
    assert_eq!(payloads(&mut stage, stayer), ["1", "3"]);
}

#[test]
fn what_a_group_has_given_that_ended_comes_to_no_other_group() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let lasting = Connect {
        client_id: "last",
        clean_start: false,
        session_expiry_s: Some(100),
        ..plain(V5)
    };
    let last = stage.client_with(lasting.clone());
    stage.subscribe(last, "$share/g/t", QOS_1);
    stage.publish(publisher, "t", QOS_1, 1, "x");
    assert_eq!(payloads(&mut stage, last), ["x"]);
    stage.unsubscribe(last, &["$share/g/t"]);
    assert_eq!(stage.statistic("mqtt_shared_groups"), 0);
    // One that takes its place, and one of its name.
    let others = ["$share/h/u", "$share/g/t"].map(|filter| member(&mut stage, filter, 10, filter));
    stage.hang_up(last);
    for other in others {
        assert_eq!(payloads(&mut stage, other), [""; 0]);
    }
    let last = stage.asks(lasting);
    stage.decide(0);
    let heard = stage.hears(last);
    assert_eq!(
        heard,
        ["CONNACK 0x00 present", "PUBLISH t qos 1 id 1 dup: x"]
    );
}

#[test]
fn a_member_of_many_groups_leaves_the_work_of_each_in_its_order() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let filters: Vec<String> = (0..20).map(|name| format!("$share/g/{name}")).collect();
    let goes = member(&mut stage, "goes", 60, "x");
    for filter in &filters {
        stage.subscribe(goes, filter, QOS_1);
    }
    for number in 0..60_u16 {
        let topic = (number % 20).to_string();
        stage.publish(publisher, &topic, QOS_1, number + 1, &number.to_string());
    }
    assert_eq!(payloads(&mut stage, goes).len(), 60);
    let stays = member(&mut stage, "stays", 200, "x");
    for filter in &filters {
        stage.subscribe_with(stays, request(filter, QOS_1));
    }
    stage.acknowledge(goes, 1);
    stage.hang_up(goes);
    let heard = stage.hears(stays);
    for topic in 0..20 {
        let begins = format!("PUBLISH {topic} ");
        let of = heard.iter().filter(|line| line.starts_with(&begins));
        let of = of.map(|line| line.rsplit(": ").next().unwrap().parse().unwrap());
        let of: Vec<u16> = of.collect();
        let first = u16::from(topic == 0);
        let expected: Vec<u16> = (first..3).map(|round| round * 20 + topic).collect();
        assert_eq!(of, expected);
    }
}

#[test]
fn who_has_room_for_what_is_smaller_gets_it_though_another_asked() {
    let mut stage = Stage::new(Limits {
        queued_bytes_max: 1_000,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "p");
    // What it holds leaves no room for a large message, and its window has room.
    let holds = member(&mut stage, "holds", 10, "$share/g/t");
    stage.publish(publisher, "t", QOS_1, 1, &"h".repeat(500));
    let busy = member(&mut stage, "busy", 1, "$share/g/t");
    stage.publish(publisher, "t", QOS_1, 2, "busy");
    assert_eq!(payloads(&mut stage, busy), ["busy"]);
    stage.publish(publisher, "t", QOS_1, 3, &"l".repeat(500));
    for (packet_id, payload) in [(4, "small"), (5, "too")] {
        stage.publish(publisher, "t", QOS_1, packet_id, payload);
    }
    assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 3);
    stage.hears(holds);
    stage.acknowledge(busy, 1);
    assert_eq!(payloads(&mut stage, busy).len(), 1, "the large one");
    assert_eq!(
        payloads(&mut stage, holds),
        ["small"],
        "it asked for nothing"
    );
    assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 1);
}
