use super::*;
use crate::session::{Ids, Memory, Message, Terms};
use QoS::{AtLeastOnce, ExactlyOnce};

fn delivery(qos: QoS, payload: u8) -> Delivery {
    let message = Message {
        head: [].into(),
        topic_bytes: 0,
        payload: vec![payload].into(),
        qos,
        retain: false,
        publisher: 0,
        expiry: None,
        arrived_ms: 0,
        held: std::sync::OnceLock::new(),
        stored: std::sync::OnceLock::new(),
    };
    let terms = Terms {
        qos,
        retain: false,
        ids: Ids::None,
        group: None,
        lease: None,
    };
    Delivery::new(message.into(), terms, None, &Memory::default())
}

fn sent(outbound: &mut Outbound) -> Vec<String> {
    let sent = std::iter::from_fn(|| outbound.next_sending());
    sent.map(|sending| match sending {
        Sending::New(id, delivery) => format!("new {id}: {}", delivery.message.payload[0]),
        Sending::Again(id, delivery) => format!("again {id}: {}", delivery.message.payload[0]),
        Sending::Release(id) => format!("release {id}"),
    })
    .collect()
}

fn enqueue(outbound: &mut Outbound, qos: QoS, payloads: std::ops::Range<u8>) {
    for payload in payloads {
        outbound.enqueue(delivery(qos, payload));
    }
    outbound.validate();
}

#[test]
fn an_id_rests_before_it_is_used_again() {
    let mut outbound = Outbound::new(3);
    outbound.attach(u16::MAX, false);
    assert_eq!(outbound.begin(AtLeastOnce, None), 1);
    assert_eq!(outbound.begin(AtLeastOnce, None), 2);
    assert_eq!(outbound.acknowledge(1), Receipt::Over);
    assert_eq!(outbound.begin(AtLeastOnce, None), 3);
    assert_eq!(outbound.begin(AtLeastOnce, None), 1);
    assert!(!outbound.has_room());
    assert_eq!(outbound.in_flight(), 3);
}

#[test]
fn a_session_that_keeps_up_does_not_grow_with_the_ids_that_there_are() {
    let mut outbound = Outbound::new(u16::MAX);
    outbound.attach(u16::MAX, false);
    for _ in 0..10_000 {
        let id = outbound.begin(AtLeastOnce, None);
        assert_eq!(outbound.acknowledge(id), Receipt::Over);
    }
    assert!(outbound.slots.len() <= RESTING_IDS + 1);
    outbound.validate();
}

#[test]
fn only_an_id_in_flight_can_be_acknowledged() {
    let mut outbound = Outbound::new(u16::MAX);
    outbound.attach(10, false);
    for id in [0, 1, u16::MAX] {
        assert_eq!(outbound.acknowledge(id), Receipt::Unknown);
        assert_eq!(outbound.complete(id), Receipt::Unknown);
        assert_eq!(outbound.receive(id, false), Receipt::Unknown);
    }
    let one = outbound.begin(AtLeastOnce, None);
    let two = outbound.begin(ExactlyOnce, None);
    assert_eq!(outbound.acknowledge(two), Receipt::Misplaced);
    assert_eq!(outbound.complete(two), Receipt::Misplaced);
    assert_eq!(outbound.receive(one, false), Receipt::Misplaced);
    assert_eq!(outbound.receive(two, false), Receipt::Release);
    assert_eq!(outbound.receive(two, false), Receipt::Release);
    assert_eq!(outbound.acknowledge(two), Receipt::Misplaced);
    for expected in [Receipt::Over, Receipt::Unknown] {
        assert_eq!(outbound.acknowledge(one), expected);
        assert_eq!(outbound.complete(two), expected);
    }
    outbound.validate();
}

#[test]
fn mqtt_4_9_the_window_of_each_connection_holds_for_what_was_in_flight_before() {
    let mut outbound = Outbound::new(100);
    outbound.attach(6, true);
    enqueue(&mut outbound, ExactlyOnce, 0..9);
    assert_eq!(sent(&mut outbound).len(), 6);
    for id in [5, 2] {
        assert_eq!(outbound.receive(id, false), Receipt::Release);
    }
    outbound.attach(2, true);
    let expected = ["release 5", "release 2", "again 1: 0", "again 3: 2"];
    assert_eq!(sent(&mut outbound), expected);
    assert_eq!(
        outbound.complete(5),
        Receipt::Over,
        "takes no place in this window"
    );
    assert_eq!(sent(&mut outbound), [""; 0]);
    assert_eq!(outbound.receive(1, true), Receipt::Over);
    assert_eq!(sent(&mut outbound), ["again 4: 3"]);
    for id in [3, 4] {
        assert_eq!(outbound.receive(id, true), Receipt::Over);
    }
    assert_eq!(sent(&mut outbound), ["again 6: 5", "new 7: 6"]);
    outbound.validate();
}

#[test]
fn an_acknowledgement_may_come_before_the_message_was_sent_again() {
    let mut outbound = Outbound::new(100);
    outbound.attach(3, true);
    enqueue(&mut outbound, AtLeastOnce, 0..3);
    assert_eq!(sent(&mut outbound).len(), 3);
    outbound.attach(1, true);
    assert_eq!(sent(&mut outbound), ["again 1: 0"]);
    for id in [2, 1] {
        assert_eq!(outbound.acknowledge(id), Receipt::Over);
    }
    assert_eq!(sent(&mut outbound), ["again 3: 2"]);
    outbound.validate();
}
