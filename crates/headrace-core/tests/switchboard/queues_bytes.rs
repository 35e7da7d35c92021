//! What settling writes to the log of sessions, in bytes: it is bounded for each settlement, whatever
//! else of its chunk has failed.

use headrace_core::mqtt::packet::{Packet, Publish};
use headrace_core::record::{Batches, Records};
use headrace_core::session::Ending;
use headrace_core::switchboard::QueueSettings;

use super::depot::*;
use super::queues::with;
use super::stage::*;

/// Messages of one chunk.
const CHUNK: usize = 4096;

/// Settlements that come together.
const TOGETHER: usize = 64;

/// Of a chunk without what has failed, with its key, in a batch of its own.
const RECORD_BYTES: usize = 512 + 3 + 100;

/// What a failure adds.
const TRY_BYTES: usize = 20;

fn patient() -> QueueSettings {
    let mut settings = settings();
    settings.policy.backoff.initial_ms = 0;
    settings.policy.failures_max = 0;
    settings.policy.read_ahead = 2 * CHUNK;
    settings.prefetch = 2 * CHUNK;
    settings
}

/// A queue whose chunk is in flight as a whole, and its consumer.
fn all_in_flight() -> (Depot, u64, Vec<String>) {
    let (mut depot, publisher, worker) = with(patient(), 1);
    depot.stage.is_validating = false;
    depot.subscribe_at(worker, "$queue/jobs?group=g", QOS_0, &[]);
    for number in 1..=CHUNK {
        depot.send(publisher, "$queue/jobs", "", &[]);
        if number % 512 == 0 {
            depot.settle(); // as many as may wait for their answers
        }
    }
    let ids = ids(&mut depot, worker);
    assert_eq!(ids.len(), CHUNK);
    (depot, worker, ids)
}

fn ids(depot: &mut Depot, worker: u64) -> Vec<String> {
    let handed = depot.take(worker);
    handed.iter().map(|each| each.id().to_owned()).collect()
}

/// Settles as `verb` says, so many at a time in an order of no use to anybody: bytes and records of
/// each round.
fn settle(depot: &mut Depot, worker: u64, verb: &str, ids: &[String]) -> Vec<(usize, usize)> {
    let mut rounds = Vec::new();
    let mut ids: Vec<&String> = ids.iter().collect();
    ids.sort_by_key(|id| {
        let offset: usize = id.split(':').nth(1).unwrap().parse().unwrap();
        offset * 1_237 % CHUNK
    });
    for some in ids.chunks(TOGETHER) {
        let mut bytes = Vec::new();
        for (packet_id, id) in (1..).zip(some) {
            let publish = Publish {
                topic: &format!("$queue/jobs/{verb}"),
                qos: QOS_1,
                packet_id,
                properties: user(&[("message-id", id)]),
                ..Publish::default()
            };
            bytes.extend(depot.stage.bytes(worker, &Packet::Publish(publish)));
        }
        depot.stage.send_bytes(worker, &bytes);
        let early = depot.reason_code(worker, 1);
        assert_eq!(early, None, "nothing is answered before it is durable");
        assert!(!depot.stage.written.is_empty());
        while !depot.stage.written.is_empty() {
            let written = &depot.stage.written;
            let batches = written.iter().map(|append| &append.batch);
            let records = batches.clone().map(|batch| {
                let batch = Batches::new(batch).next().unwrap().unwrap();
                Records::new(&batch.header, batch.body()).count()
            });
            rounds.push((batches.clone().map(Vec::len).sum(), records.sum()));
            depot.stage.write_once(Ending::Stored);
        }
        for packet_id in 1..=some.len() as u16 {
            assert_eq!(depot.reason_code(worker, packet_id), Some(0));
        }
    }
    depot.settle();
    rounds
}

#[test]
fn a_round_writes_each_chunk_once_however_many_settle_in_it() {
    let (mut depot, worker, ids) = all_in_flight();
    for (bytes, records) in settle(&mut depot, worker, "$ack", &ids) {
        assert!(records <= 2, "the chunk, and the one behind it at its end");
        assert!(bytes <= records * RECORD_BYTES, "{bytes}");
    }
    assert_eq!(depot.depth(JOBS), 0);
}

#[test]
fn what_failed_beside_it_adds_nothing_to_a_settlement() {
    let (mut depot, worker, ids) = all_in_flight();
    depot.settings.is_paused = true; // what failed stays so
    let settings = depot.settings.clone();
    depot.stage.switchboard.set_queue(JOBS, settings).unwrap();
    let (settled, failed) = ids.split_at(CHUNK / 4);
    for (bytes, records) in settle(&mut depot, worker, "$nack", failed) {
        assert_eq!(records, 1);
        assert!(bytes <= RECORD_BYTES + TOGETHER * TRY_BYTES, "{bytes}");
    }
    for (bytes, records) in settle(&mut depot, worker, "$ack", settled) {
        assert_eq!(records, 1);
        assert!(bytes <= RECORD_BYTES, "{bytes}");
    }
    depot.crash();
    assert_eq!(depot.depth(JOBS), failed.len() as u64);
}

#[test]
fn where_all_has_failed_once_settling_costs_what_it_did() {
    let (mut depot, worker, ids) = all_in_flight();
    settle(&mut depot, worker, "$nack", &ids);
    let again = self::ids(&mut depot, worker);
    assert_eq!(again.len(), CHUNK);
    assert!(again.iter().all(|id| id.ends_with(":2")));
    let (first, rest) = again.split_at(CHUNK / 2);
    for (bytes, records) in settle(&mut depot, worker, "$ack", first) {
        assert!(bytes <= records * RECORD_BYTES, "{bytes}");
    }
    // What the log tells in many records is what it was.
    depot.crash();
    assert_eq!(depot.depth(JOBS), rest.len() as u64);
    let worker = depot.client("worker");
    depot.subscribe_at(worker, "$queue/jobs?group=g", QOS_0, &[]);
    let mut third = self::ids(&mut depot, worker);
    let mut owed: Vec<String> = rest.to_vec();
    third.sort_unstable();
    owed.sort_unstable();
    assert_eq!(third, owed, "each for the second time");
}

#[test]
fn what_was_refused_is_written_once_when_it_is_written_again() {
    let (mut depot, worker, ids) = all_in_flight();
    for (packet_id, id) in (1..).zip(&ids[..20]) {
        let user = user(&[("message-id", id)]);
        depot
            .stage
            .publish_with(worker, "$queue/jobs/$nack", QOS_1, packet_id, "", user);
        depot.stage.write_once(Ending::NoRoom);
        depot.stage.wait(200);
    }
    let batches = depot.stage.written.iter().map(|append| &append.batch);
    let records = batches.clone().map(|batch| {
        let batch = Batches::new(batch).next().unwrap().unwrap();
        Records::new(&batch.header, batch.body()).count()
    });
    assert_eq!(records.sum::<usize>(), 1);
    let bytes: usize = batches.map(Vec::len).sum();
    assert!(bytes <= RECORD_BYTES + 20 * TRY_BYTES, "{bytes}");
    depot.settle();
    depot.crash();
    let worker = depot.client("worker");
    depot.subscribe_at(worker, "$queue/jobs?group=g", QOS_0, &[]);
    let handed = self::ids(&mut depot, worker);
    let again = handed.iter().filter(|id| id.ends_with(":2"));
    assert_eq!(again.count(), 20, "what failed is known to have");
}
