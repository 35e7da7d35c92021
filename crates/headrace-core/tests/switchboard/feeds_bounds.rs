//! Streams that clients read: what one client may ask for.

use headrace_core::mqtt::packet::{Packet, Subscribe};

use super::shelf::*;
use super::stage::*;

/// Subscribes to all of these at once; how many were granted, and the packet.
fn subscribe_all(
    stage: &mut Stage,
    shelf: &mut Shelf,
    client: u64,
    filters: &[String],
) -> (usize, String) {
    let filters = filters.iter();
    let subscribe = Subscribe {
        packet_id: 1,
        filters: filters.map(|filter| request(filter, QOS_0)).collect(),
        ..Subscribe::default()
    };
    stage.send(client, &Packet::Subscribe(subscribe));
    shelf.place(stage, None);
    let suback = stage.hears(client).remove(0);
    (suback.matches("0x00").count(), suback)
}

#[test]
fn why_filters_are_refused_is_a_line_however_many_and_long_they_are() {
    let mut stage = Stage::default();
    let mut shelf = Shelf::new(&mut stage, 1);
    let client = stage.client(V5, "client");
    let long = "ü".repeat(32_700);
    for filters in [
        vec![format!("$stream/{long}")],
        vec![format!("$stream/+/{long}")],
        vec![format!("$share/g/$stream/s/{long}")],
        (0..3_000).map(|n| format!("$stream/t{n}/#")).collect(),
        (0..3_000).map(|n| format!("$stream/+/{n}")).collect(),
    ] {
        let (granted, suback) = subscribe_all(&mut stage, &mut shelf, client, &filters);
        assert_eq!(granted, 0);
        let (_, text) = suback.split_once("] ").unwrap();
        assert!((20..=1024).contains(&text.len()), "{}", text.len());
    }
    stage.subscribe_with(client, request("a", QOS_0));
    assert_eq!(stage.hears(client), ["SUBACK 1 [0x00]"]);
}
