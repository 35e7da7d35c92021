//! The engine against a disk that loses what was not synced.

mod chores;
mod compact;
mod crash;
mod damage;
mod epochs;
mod flips;
mod fsync;
mod marks;
mod memory;
mod opening;
mod orders;
mod overlap;
mod producers;
mod sources;
mod space;
mod starts;
mod state;
mod unreadable;
mod withdraw;

use super::disk::{Disk, DiskOp};
use super::machine::Machine;
use super::partition::LogId;
use super::read::Plan;
use super::{Bounds, Error, Options, Saving};
use crate::record::{set_base_offset, set_leader_epoch, BatchBuilder, HEADER_BYTES};
use crate::testing::tests::seeds;
use crate::testing::SimDisk;

/// Small files, so that a short run rolls and rotates often.
const SMALL: Options = Options {
    journal_bytes: 128 << 10,
    segment_bytes: 20_000,
    index_interval_bytes: 500,
    direct_write_bytes: 8 << 10,
    reserve_bytes: 1,
    seed: 77,
    bounds: BOUNDS,
};

/// So little that a short run reaches it.
const BOUNDS: Bounds = Bounds {
    index_bytes: 2 << 10, // those of a segment or two
    finished_files: 8,
    producers: 1000,
    compaction_keys: 50,
    compaction_piece_bytes: 5000,
};

/// A batch of `records` records whose values are `bytes` times `fill`.
fn batch(records: usize, bytes: usize, fill: u8, timestamp: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for at in 0..records {
        builder.push(
            timestamp + at as i64,
            Some(b"key"),
            Some(&vec![fill; bytes]),
            [],
        );
    }
    builder.finish()
}

/// The batch as an idempotent producer sends it.
fn produced(mut batch: Vec<u8>, id: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    batch[43..51].copy_from_slice(&id.to_be_bytes());
    batch[51..53].copy_from_slice(&epoch.to_be_bytes());
    batch[53..57].copy_from_slice(&sequence.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// The batch as it stands in a log.
fn stamped(mut batch: Vec<u8>, offset: i64) -> Vec<u8> {
    assert!(batch.len() > HEADER_BYTES);
    set_base_offset(&mut batch, offset);
    set_leader_epoch(&mut batch, 0);
    batch
}

/// As `headrace-io` reads.
fn read(
    machine: &mut Machine,
    disk: &SimDisk,
    log: LogId,
    offset: i64,
    bytes_max: usize,
) -> Result<Vec<u8>, Error> {
    loop {
        match machine.plan_read(log, offset)? {
            Plan::Nothing => return Ok(Vec::new()),
            Plan::Load(files) => {
                let index = files.load(disk)?;
                machine.indexed(index);
            }
            Plan::Walk(walk) => return walk.read(disk, offset, bytes_max),
        }
    }
}

fn perform(disk: &SimDisk, ops: &[DiskOp]) {
    for op in ops {
        disk.perform(op).unwrap();
    }
}

/// Keeps sources, as `headrace-io` does.
fn save(machine: &mut Machine, disk: &SimDisk, saving: impl Into<Option<Saving>>) {
    if let Some(saving) = saving.into() {
        perform(disk, &saving.ops);
        machine.sources_saved(saving);
    }
}

/// Performs rounds and chores until nothing is due; every append succeeds.
fn commit(machine: &mut Machine, disk: &SimDisk) {
    machine.submit();
    let perform = |op: &DiskOp| disk.perform(op).unwrap();
    loop {
        if let Some(draft) = machine.next_round(0) {
            let round = draft.build();
            round.before.iter().chain(&round.after).for_each(perform);
            for ended in machine.round_done(round, Ok(()), 0, 0) {
                assert_eq!(ended.error, None);
            }
        } else if let Some(chore) = machine.next_chore() {
            chore.ops.iter().for_each(perform);
            assert_eq!(machine.chore_done(&chore, Ok(())), []);
        } else {
            return;
        }
    }
}
