use super::*;

fn answer(token: u64) -> Answer {
    Answer {
        token,
        qos: QoS::AtLeastOnce,
        outcome: Outcome::Accepted,
        streams: 1,
        deferred: None,
        traced: None,
    }
}

fn exactly_once(token: u64) -> Answer {
    Answer {
        qos: QoS::ExactlyOnce,
        ..answer(token)
    }
}

fn ready(inbound: &mut Inbound) -> Vec<(u64, Outcome)> {
    std::iter::from_fn(|| inbound.next_answer())
        .map(|answer| (answer.token, answer.outcome))
        .collect()
}

/// Holds 5.0: 4.6.0-2, 4.6.0-3.
/// Holds 3.1.1: 4.6.0-2, 4.6.0-3.
#[test]
fn mqtt_4_6_answers_leave_in_packet_order_though_tickets_end_in_any() {
    let mut inbound = Inbound::default();
    let first = inbound.push(answer(7), 1);
    let second = inbound.push(answer(8), 2);
    inbound.push(answer(9), 0);
    inbound.settle(second, Ending::Stored);
    inbound.settle(second, Ending::Stored);
    assert_eq!(ready(&mut inbound), []);
    inbound.settle(first, Ending::Stored);
    let expected = [7, 8, 9].map(|token| (token, Outcome::Accepted));
    assert_eq!(ready(&mut inbound), expected);
    assert!(inbound.is_empty());
}

#[test]
fn one_failed_ticket_of_several_fails_the_publish() {
    let mut inbound = Inbound::default();
    let ordinal = inbound.push(answer(1), 2);
    inbound.settle(ordinal, Ending::Refused);
    inbound.settle(ordinal, Ending::Stored);
    assert_eq!(ready(&mut inbound), [(1, Outcome::NotStored)]);
}

#[test]
fn mqtt_4_3_3_an_id_is_remembered_until_it_is_released() {
    let mut inbound = Inbound::default();
    let ordinal = inbound.push(exactly_once(7), 1);
    assert_eq!(inbound.repeat(7), Repeat::Waiting);
    assert!(!inbound.release(7), "PUBREC has not been sent");
    inbound.settle(ordinal, Ending::Stored);
    assert_eq!(ready(&mut inbound), [(7, Outcome::Accepted)]);
    assert_eq!(inbound.repeat(7), Repeat::Taken);
    assert_eq!((inbound.open(), inbound.unreleased()), (1, 1));
    assert!(inbound.release(7) && inbound.release(7));
    inbound.refused();
    assert!(!inbound.release(7), "it may be what was refused");
    assert_eq!(inbound.repeat(7), Repeat::New);
    assert_eq!((inbound.open(), inbound.unreleased()), (0, 0));
}

#[test]
fn mqtt_4_3_3_a_refused_publish_leaves_its_id_free() {
    let mut inbound = Inbound::default();
    let ordinal = inbound.push(exactly_once(7), 1);
    inbound.settle(ordinal, Ending::Refused);
    assert_eq!(ready(&mut inbound), [(7, Outcome::NotStored)]);
    assert_eq!(inbound.repeat(7), Repeat::New);
    assert_eq!(inbound.open(), 0);
}

#[test]
fn a_later_connection_is_told_of_what_it_has_asked_itself() {
    let mut inbound = Inbound::default();
    let ordinals = [answer(1), exactly_once(2), exactly_once(3)].map(|answer| {
        let ordinal = inbound.push(answer, 1);
        inbound.validate();
        ordinal
    });
    assert_eq!(inbound.open(), 3);
    inbound.detach();
    assert_eq!(inbound.open(), 0);
    assert_eq!(inbound.repeat(3), Repeat::Waiting);
    assert_eq!(inbound.open(), 1);
    for ordinal in ordinals {
        inbound.settle(ordinal, Ending::Stored);
    }
    let told: Vec<u64> = ready(&mut inbound)
        .iter()
        .map(|(token, _)| *token)
        .collect();
    assert_eq!(told, [0, 0, 3]);
    assert_eq!(inbound.repeat(2), Repeat::Taken);
    inbound.validate();
}
