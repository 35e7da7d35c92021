//! Many retained messages for one subscription: sent bit by bit, beside everything else.

use headrace_core::mqtt::packet::{Connect, Packet, Subscribe};
use headrace_core::switchboard::Limits;

use super::stage::*;

#[test]
fn however_slow_a_reader_is_it_gets_all_that_is_retained_and_costs_little() {
    slow_reader(20_000);
}

#[test]
#[ignore = "a minute; five times as many"]
fn however_slow_a_reader_is_it_gets_all_of_a_hundred_thousand() {
    slow_reader(100_000);
}

fn slow_reader(topics: usize) {
    for (qos, receive_maximum) in [(QOS_0, 10), (QOS_1, 10), (QOS_2, 3)] {
        let limits = Limits {
            outbound_bytes_max: 100_000,
            queued_messages_max: 10,
            ..Limits::default()
        };
        let mut stage = Stage::new(limits);
        stage.is_validating = false;
        let publisher = stage.client(V5, "p");
        let payload = "x".repeat(100);
        for topic in 0..topics {
            stage.retain(publisher, &format!("t/{topic}"), qos, &payload);
            if qos == QOS_2 {
                stage.release(publisher, 9);
            }
        }
        stage.hears(publisher);
        let slow = stage.client_with(Connect {
            client_id: "slow",
            receive_maximum: Some(receive_maximum),
            ..plain(V5)
        });
        let peer = stage.client(V5, "peer");
        stage.subscribe(peer, "u", QOS_0);
        stage.credit(slow, 0);
        stage.subscribe_with(slow, request("t/#", qos));
        stage.wait(10_000);
        assert!(stage.statistic("mqtt_outbound_bytes") < 100_000);
        assert_eq!(stage.statistic("mqtt_outbound_queued_bytes"), 0);
        // The others go on, and so does what is published to it meanwhile.
        stage.publish(publisher, "u", QOS_0, 0, "y");
        assert_eq!(stage.hears(peer), ["PUBLISH u qos 0: y"]);
        let mut heard = 0;
        while heard < topics {
            stage.credit(slow, 1_000);
            stage.credit(slow, 50_000);
            let before = heard;
            for id in stage.hears_ids(slow) {
                heard += 1;
                match qos {
                    QOS_0 => {}
                    QOS_1 => stage.acknowledge(slow, id),
                    QOS_2 => stage.complete(slow, id),
                }
            }
            assert!(heard > before, "{qos:?} {heard}");
            assert!(stage.statistic("mqtt_outbound_bytes") < 100_000);
        }
        stage.switchboard.validate();
        for reason in ["outbound_full", "queue_full"] {
            let name = format!("mqtt_messages_dropped_total{{reason=\"{reason}\"}}");
            assert_eq!(stage.statistic(&name), 0, "{reason}");
        }
        assert_eq!(heard, topics);
    }
}

#[test]
fn what_changes_while_they_are_sent_comes_once_and_last() {
    let limits = Limits {
        outbound_bytes_max: 1_000,
        ..Limits::default()
    };
    let mut stage = Stage::new(limits);
    let publisher = stage.client(V5, "p");
    for topic in 0..100 {
        stage.retain(publisher, &format!("t/{topic:02}"), QOS_0, "old");
    }
    let slow = stage.client(V5, "slow");
    stage.credit(slow, 0);
    stage.subscribe_with(slow, request("#", QOS_0));
    stage.retain(publisher, "t/99", QOS_0, "new");
    stage.retain(publisher, "t/98", QOS_0, "");
    stage.retain(publisher, "t/975", QOS_0, "more");
    stage.credit(slow, usize::MAX);
    let heard = stage.hears(slow);
    let of = |topic: &str| -> Vec<&String> {
        let begins = format!("PUBLISH {topic} ");
        heard
            .iter()
            .filter(|line| line.starts_with(&begins))
            .collect()
    };
    assert_eq!(of("t/99"), ["PUBLISH t/99 qos 0: new"]);
    assert_eq!(of("t/98"), ["PUBLISH t/98 qos 0: "]);
    assert_eq!(of("t/975"), ["PUBLISH t/975 qos 0: more"]);
    assert_eq!(heard.len(), 1 + 98 + 3);
}

#[test]
fn what_is_left_to_send_waits_for_the_client_to_come_back() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    for topic in 0..100 {
        stage.retain(publisher, &format!("t/{topic:02}"), QOS_1, "x");
    }
    stage.hears(publisher);
    let again = || Connect {
        client_id: "c",
        receive_maximum: Some(10),
        session_expiry_s: Some(1_000),
        clean_start: false,
        ..plain(V5)
    };
    let client = stage.client_with(again());
    stage.subscribe_with(client, request("#", QOS_1));
    assert_eq!(stage.hears(client).len(), 11);
    for id in 1..=10 {
        stage.acknowledge(client, id);
    }
    assert_eq!(stage.hears(client).len(), 10);
    stage.hang_up(client);
    let client = stage.asks(again());
    stage.decide(0);
    let mut heard = 10;
    loop {
        let ids = stage.hears_ids(client);
        if ids.is_empty() {
            break;
        }
        heard += ids.len();
        for id in ids {
            stage.acknowledge(client, id);
        }
    }
    assert_eq!(heard, 100);
    // Unsubscribed, nothing more comes.
    let client = stage.client_with(Connect {
        clean_start: true,
        ..again()
    });
    stage.subscribe_with(client, request("#", QOS_1));
    assert_eq!(stage.hears(client).len(), 11);
    stage.unsubscribe(client, &["#"]);
    stage.hears(client);
    for id in 1..=10 {
        stage.acknowledge(client, id);
    }
    assert_eq!(stage.hears(client), [""; 0]);
}

#[test]
fn searches_that_find_nothing_do_not_keep_others_from_theirs() {
    let mut stage = Stage::default();
    stage.is_validating = false;
    let publisher = stage.client(V5, "p");
    for name in 0..20_000 {
        stage.retain(publisher, &format!("{name}/x"), QOS_0, "x");
    }
    let [greedy, modest] = ["g", "m"].map(|name| stage.client(V5, name));
    let none: Vec<String> = (0..100).map(|name| format!("+/none/{name}")).collect();
    for (client, filters) in [(greedy, none), (modest, vec!["+/x".to_owned()])] {
        let subscribe = Subscribe {
            packet_id: 1,
            filters: filters.iter().map(|each| request(each, QOS_0)).collect(),
            ..Subscribe::default()
        };
        let bytes = stage.bytes(client, &Packet::Subscribe(subscribe));
        let (board, now) = (&mut stage.switchboard, stage.now);
        board.receive(client, &bytes, now).unwrap();
    }
    for _ in 0..3 {
        let effects = stage.switchboard.collect(stage.now);
        stage.perform(effects.unwrap_or_default());
    }
    assert!(
        stage.hears(modest).len() > 1,
        "one search in two is its own"
    );
}
