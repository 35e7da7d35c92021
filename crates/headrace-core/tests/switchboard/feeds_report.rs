//! Streams that clients read: how far they are, as administration is shown it.

use std::collections::BTreeMap;

use headrace_core::mqtt::packet::Connect;
use headrace_core::record::Codec;
use headrace_core::switchboard::{StreamLag, POSITIONS_SHOWN_MAX};

use super::shelf::*;
use super::stage::*;

const ENOUGH: usize = 1_000;

/// A reader of `$stream/s/#` from the beginning, that lasts.
fn reader(stage: &mut Stage, shelf: &mut Shelf, client_id: &str, receive_maximum: u16) -> u64 {
    let client = stage.client_with(Connect {
        client_id,
        session_expiry_s: Some(60),
        receive_maximum: Some(receive_maximum),
        ..plain(V5)
    });
    shelf.subscribe(stage, client, ("$stream/s/#", QOS_1), Some(0));
    client
}

fn next(stage: &Stage, client_id: &str) -> Vec<(String, u64, Vec<i64>)> {
    let report = stage.switchboard.session(client_id, stage.now).unwrap();
    let streams = report.streams.into_iter();
    let streams = streams.map(|each| (each.filter, each.stream, each.next));
    streams.collect()
}

fn lags(stage: &Stage, bounds: &[(i64, i64)], steps_max: usize) -> (Option<StreamLag>, usize) {
    let bounds = BTreeMap::from([(STREAM, bounds.to_vec())]);
    let (lags, left_out) = stage.switchboard.stream_lags(&bounds, steps_max);
    (lags.get(&STREAM).copied(), left_out)
}

#[test]
fn a_session_is_shown_with_the_next_offset_of_each_partition_that_it_reads() {
    let mut stage = Stage::default();
    let mut shelf = Shelf::new(&mut stage, 2);
    let client = reader(&mut stage, &mut shelf, "reader", 3);
    let at = |next: [i64; 2]| vec![("$stream/s/#".to_owned(), STREAM, next.to_vec())];
    assert_eq!(next(&stage, "reader"), at([0, 0]));
    shelf.produce(&mut stage, 0, 2, Codec::None);
    shelf.produce(&mut stage, 1, 5, Codec::None);
    assert_eq!(next(&stage, "reader"), at([2, 1]), "three are under way");
    stage.hears(client);
    stage.subscribe(client, "a", QOS_0);
    stage.hang_up(client);
    assert_eq!(next(&stage, "reader"), at([2, 1]));
    stage.client(V5, "other");
    assert_eq!(next(&stage, "other"), []);
}

#[test]
fn no_more_places_are_shown_than_are_told_in_a_moment() {
    let mut stage = Stage::default();
    let mut shelf = Shelf::new(&mut stage, 1_000);
    let client = stage.client(V5, "reader");
    for number in 0..5 {
        let filter = format!("$stream/s/{number}");
        shelf.subscribe(&mut stage, client, (&filter, QOS_0), None);
    }
    let shown = next(&stage, "reader");
    assert_eq!(shown.len(), POSITIONS_SHOWN_MAX / 1_000);
    assert_eq!(shown[0].0, "$stream/s/0", "the first, and each whole");
    assert!(shown.iter().all(|(_, _, next)| next.len() == 1_000));
}

#[test]
fn a_lag_is_that_of_the_last_reader_apart_for_those_who_are_away() {
    let mut stage = Stage::default();
    let mut shelf = Shelf::new(&mut stage, 2);
    assert_eq!(lags(&stage, &[(0, 0), (0, 0)], ENOUGH), (None, 0));
    let gone = reader(&mut stage, &mut shelf, "gone", 100);
    stage.hang_up(gone);
    reader(&mut stage, &mut shelf, "slow", 1);
    reader(&mut stage, &mut shelf, "quick", 100);
    shelf.produce(&mut stage, 0, 4, Codec::None);
    shelf.produce(&mut stage, 1, 6, Codec::None);
    let both = |connected, away| Some(StreamLag { connected, away });
    let bounds = [(0, 4), (0, 6)];
    assert_eq!(lags(&stage, &bounds, ENOUGH), (both(9, 10), 0));
    assert_eq!(
        lags(&stage, &[(3, 4), (0, 6)], ENOUGH),
        (both(7, 7), 0),
        "what retention has let go is waited for by nobody"
    );
    assert_eq!(lags(&stage, &bounds, 3), (both(0, 10), 2), "of the first");
    assert_eq!(lags(&stage, &bounds, 2), (None, 3));
    let (readers, count) = stage.switchboard.stream_readers(STREAM, 2);
    let named = [("gone".to_owned(), false), ("slow".to_owned(), true)];
    assert_eq!((&readers[..], count), (&named[..], 3));
    assert_eq!(stage.switchboard.stream_readers(8, 2).1, 0);
}
