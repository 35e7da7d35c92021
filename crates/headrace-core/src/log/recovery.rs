//! Opening a data folder: from what is on disk to a running machine.
//!
//! 1. Every journal file since the last start is synced, read and verified before anything is
//!    changed by it.
//! 2. A clean mark at the end: the state is its checkpoint, segments are held against it by
//!    length, indexes are loaded; an active segment that is too small for index files is scanned.
//! 3. Else the state is the oldest file's first checkpoint plus all entries after it. Bytes that
//!    the checkpoint tells of were synced into their segments: they must be there. Bytes after it
//!    are compared with the journal and rewritten where they differ; direct writes are held
//!    against their CRC. What lies beyond was never acknowledged and is cut.
//! 4. Segments that were written since that checkpoint are scanned, CRCs included; the older ones
//!    are held against it by length and by their last batches.
//! 5. All is synced, and a new journal file begins with a checkpoint. Only then do the old ones
//!    go, so a crash on the way starts over.
//!
//! Memory holds one round of the journal at a time, and of its entries where they stand. Segments
//! are read in pieces.
//!
//! Below the durable point nothing is ever cut: what is missing or wrong there is a [`Damage`].

use std::collections::BTreeSet;
use std::sync::Arc;

use super::disk::{Disk, DiskOp, Path};
use super::error::Error;
use super::journal::{Chain, FileHeader, RoundWriter};
use super::layout;
use super::machine::{Journal, Machine};
use super::mend::Mender;
use super::options::Options;
use super::partition::Log;
use super::story::{journal_files, newest_start, read_journal};

/// What opening found and mended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The store was closed in order: nothing was replayed.
    pub clean: bool,
    /// Logs that were found.
    pub logs: u64,
    /// Batches that were rewritten into segments.
    pub replayed_batches: u64,
    /// Bytes of never acknowledged tails that were cut.
    pub truncated_bytes: u64,
    /// Segments whose index files did not hold what was written, and were made anew.
    pub rebuilt_indexes: u64,
}

/// Opens the folder behind `disk`.
pub fn open(disk: &impl Disk, options: Options) -> Result<(Machine, Recovery), Error> {
    options.check()?;
    for folder in [layout::STREAMS, layout::JOURNAL, layout::TRASH] {
        disk.perform(&DiskOp::CreateFolder {
            path: folder.into(),
        })?;
    }
    disk.perform(&DiskOp::SyncFolder { path: "".into() })?;

    let sequences = journal_files(disk)?;
    // From now on a journal file reads as the disk has it. A process that died may have left its last
    // rounds in memory alone, where after a failed sync they look as if they were durable: nothing is
    // done by them that a power cut could then leave without a reason.
    disk.perform(&DiskOp::Settle {
        paths: sequences
            .iter()
            .copied()
            .map(layout::journal_file)
            .collect(),
    })?;
    let own = newest_start(disk, &sequences)?;
    let mut story = read_journal(disk, &sequences[own..])?;
    disk.perform(&DiskOp::SyncFolder {
        path: layout::JOURNAL.into(),
    })?;
    for path in [layout::STREAMS, layout::TRASH] {
        disk.perform(&DiskOp::SyncFolder { path: path.into() })?;
    }
    story.forget_deleted(disk)?;

    let mut mender = Mender::new(disk, options, story.clean, story.logs.len());
    mender.settle(story.logs.values())?;
    let logs = story
        .logs
        .values()
        .map(|told| mender.mend(told))
        .collect::<Result<Vec<_>, _>>()?;
    let report = Recovery {
        logs: logs.len() as u64,
        ..mender.finish()?
    };
    let sequence = sequences.last().map_or(0, |last| last + 1);
    let header = FileHeader {
        sequence,
        bytes: options.journal_bytes,
        generation: story.generation,
        first: sequence,
        began: story.chain.unwrap_or(Chain {
            round: 0,
            crc: options.seed,
        }),
    };
    let machine = begin(disk, options, logs, story.next_id, header, &sequences)?;
    empty_trash(disk)?;
    Ok((machine, report))
}

/// Removes deleted streams; what else stands there somebody else has put there.
fn empty_trash(disk: &impl Disk) -> Result<(), Error> {
    let names = disk.list(layout::TRASH)?;
    for name in names.iter().filter(|name| layout::trashed(name).is_some()) {
        let path = format!("{}/{name}", layout::TRASH).into();
        disk.perform(&DiskOp::RemoveFolder { path })?;
    }
    Ok(disk.perform(&DiskOp::SyncFolder {
        path: layout::TRASH.into(),
    })?)
}

/// Begins a new journal file and lets the old ones go.
pub(super) fn begin(
    disk: &impl Disk,
    options: Options,
    logs: Vec<Log>,
    next_id: u32,
    header: FileHeader,
    old: &[u64],
) -> Result<Machine, Error> {
    let spare = Path::from(layout::SPARE);
    if disk.size(&spare)? != Some(options.journal_bytes) {
        // It does not count before it is synced whole; it may be the rest of an earlier try.
        disk.perform(&DiskOp::Zero {
            path: spare.clone(),
            bytes: options.journal_bytes,
        })?;
    }
    let path = layout::journal_file(header.sequence);
    let journal = Journal {
        path: path.clone(),
        header,
        chain: header.began,
        position: 0,
        synced: header.began.round,
        sync_at_ns: None,
        previous: None,
        spare: false,
    };
    let mut machine = Machine::new(options, journal);
    machine.next_id = next_id;
    for log in logs {
        machine.adopt(log);
    }
    machine.strangers = strangers(disk, &machine)?;
    let mut buffer = Vec::new();
    header.encode(&mut buffer);
    let synced = header.began.round;
    let mut round = RoundWriter::begin(&mut buffer, header.began, header.seed(), synced);
    round.checkpoint(&machine.checkpoint(false).encode());
    let journal = &mut machine.journal;
    journal.chain = header.began.after(round.finish());
    journal.position = buffer.len() as u64;
    journal.synced = journal.chain.round;
    if 2 * journal.position > options.journal_bytes {
        return Err(Error::Argument(format!(
            "journal_bytes is too small for the {} logs of this folder",
            machine.names.len()
        )));
    }
    let folder = || DiskOp::SyncFolder {
        path: layout::JOURNAL.into(),
    };
    for op in [
        DiskOp::Write {
            path: spare.clone(),
            position: 0,
            data: buffer.into(),
        },
        DiskOp::Sync {
            path: spare.clone(),
        },
        DiskOp::Rename {
            from: spare.clone(),
            to: path,
        },
        folder(),
    ] {
        disk.perform(&op)?;
    }
    // Oldest first, each gone for good before the next: what remains is always a whole chain.
    for sequence in old {
        let path = layout::journal_file(*sequence);
        let fits = disk.size(&path)? == Some(options.journal_bytes);
        if fits && !machine.journal.spare {
            disk.perform(&DiskOp::Rename {
                from: path,
                to: spare.clone(),
            })?;
            machine.journal.spare = true;
        } else {
            disk.perform(&DiskOp::Remove { path })?;
        }
        disk.perform(&folder())?;
    }
    Ok(machine)
}

/// Partitions that hold records of which the journal knows nothing. Never touched: they are
/// somebody's data, put there by hand, or the journal was taken away.
fn strangers(disk: &impl Disk, machine: &Machine) -> Result<BTreeSet<(String, u32)>, Error> {
    let mut strangers = BTreeSet::new();
    for stream in disk.list(layout::STREAMS)? {
        for name in disk.list(&layout::stream_folder(&stream))? {
            let Ok(partition) = name.parse() else {
                continue;
            };
            if machine
                .names
                .contains_key(&(Arc::from(stream.as_str()), partition))
            {
                continue;
            }
            let folder = layout::log_folder(&stream, partition);
            for name in disk.list(&folder)? {
                let is_segment =
                    layout::segment_of(&name).is_some_and(|(_, _, kind)| kind == layout::SEGMENT);
                let path = format!("{folder}/{name}");
                // An empty segment that does not begin at 0 tells of records that were trimmed.
                let is_first = name.trim_start_matches('0').starts_with('.');
                if is_segment && (!is_first || disk.size(&path)?.is_some_and(|bytes| bytes > 0)) {
                    strangers.insert((stream.clone(), partition));
                }
            }
        }
    }
    Ok(strangers)
}
