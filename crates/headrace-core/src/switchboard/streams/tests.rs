use super::*;
use crate::mqtt::packet::PublishProperties;
use crate::session::Ending;

fn send(streams: &mut Streams, slot: u32, source: &str, sequence: u64, ordinal: u64) -> Stored {
    let sequence = sequence.to_string();
    let publish = Publish {
        topic: "t",
        properties: PublishProperties {
            user: vec![("source", source), ("epoch", "1"), ("sequence", &sequence)],
            ..PublishProperties::default()
        },
        ..Publish::default()
    };
    let waiter = Waiter { origin: 0, ordinal };
    let stored = streams.store(&[slot], &publish, 0, Some(waiter));
    streams.collect();
    stored
}

#[test]
fn the_sources_of_all_partitions_together_are_bounded() {
    let mut streams = Streams::new(Key(1, 2));
    let slots: Vec<u32> = (0..5)
        .map(|id| streams.bind(id, 1, KeyRule::Topic))
        .collect();
    let known = |streams: &mut Streams| -> usize {
        (0..5).map(|id| streams.sources(id, 0).unwrap().len()).sum()
    };
    for at in 0..5 * SOURCES_OF_NODE_MAX as u64 {
        // A tenth of the streams has nine tenths of the sources.
        let slot = slots[if at % 10 == 0 {
            1 + at as usize / 10 % 4
        } else {
            0
        }];
        send(&mut streams, slot, &at.to_string(), 1, at);
        assert!(streams.sources <= SOURCES_OF_NODE_MAX);
        assert!(known(&mut streams) <= streams.sources);
    }
    assert!(known(&mut streams) > SOURCES_OF_NODE_MAX / 2);
    let names: Vec<String> = (0..2 * SOURCES_OF_NODE_MAX)
        .map(|at| format!("x{at}"))
        .collect();
    let loaded = names.iter().map(|name| (name.as_str(), 1, 1));
    streams.load_sources(4, 0, loaded).unwrap();
    assert!(known(&mut streams) <= SOURCES_OF_NODE_MAX);
}

#[test]
fn a_repeat_costs_the_same_however_much_is_in_flight() {
    let mut streams = Streams::new(Key(1, 2));
    let slot = streams.bind(1, 1, KeyRule::Topic);
    let mut tickets = Vec::new();
    for ordinal in 0..100 {
        send(&mut streams, slot, "s", ordinal, ordinal);
        tickets.push(1 + 2 * ordinal);
    }
    for ordinal in 100..200 {
        assert_eq!(send(&mut streams, slot, "s", 5, ordinal).tickets, 1);
    }
    let ends: Vec<usize> = tickets
        .into_iter()
        .map(|ticket| {
            streams
                .durable(ticket, Ending::Stored)
                .expect("in flight")
                .len()
        })
        .collect();
    assert_eq!(ends[..99], [1; 99]);
    assert_eq!(ends[99], 101, "the last publish, and every repeat once");
}
