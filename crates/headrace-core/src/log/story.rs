//! What the journal tells: from its entries to what each log should be (step 1 of recovery).

use std::collections::BTreeMap;

use super::disk::{Disk, Path};
use super::epochs::Epochs;
use super::error::{Damage, Error};
use super::journal::{
    entries, file_header, walk, Chain, Entry, Found, LogState, SegmentState, Swap,
};
use super::layout;
use super::scan::read;

/// Bytes that a file of the journal holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// Sequence number of the file.
    file: u64,
    position: u64,
    length: u32,
}

impl Held {
    /// Reads them again: they were verified, and are not kept in memory.
    pub(super) fn read(&self, disk: &impl Disk) -> Result<Vec<u8>, Error> {
        let path = layout::journal_file(self.file);
        let bytes = read(disk, &path, self.position, self.length as usize, None)?;
        if bytes.len() == self.length as usize {
            return Ok(bytes);
        }
        let what = "the journal file was cut while it was read";
        Err(damage(&path, self.position, None, what))
    }
}

/// Bytes that belong at a place of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Redo {
    /// The segment begins.
    Roll {
        created_ms: Option<i64>,
    },
    Write(Held),
    Direct {
        length: u32,
        crc: u32,
    },
}

/// A log as the journal tells it.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) state: LogState,
    /// The segment that was written to when the checkpoint was: that one and those after it have
    /// grown since, unless a compaction wrote them.
    pub(super) open: i64,
    /// Where segments begin whose snapshot of producers was synced with the index of the one before:
    /// both are left by one roll. Of what a compaction wrote since, the index alone was.
    pub(super) settled: Vec<i64>,
    /// The epochs' file was synced as the journal tells it: nothing has changed it since a checkpoint
    /// that all before it was synced for.
    pub(super) epochs_settled: bool,
    /// Base of the segment, position, what stands there.
    pub(super) redo: Vec<(i64, u64, Redo)>,
}

impl Told {
    pub(super) fn new(state: LogState) -> Self {
        let open = state.segments.last().map_or(0, |active| active.base);
        let pairs = state.segments.windows(2);
        let settled = pairs.filter(|pair| pair[0].index_crc.is_some());
        Self {
            settled: settled.map(|pair| pair[1].base).collect(),
            state,
            open,
            epochs_settled: false,
            redo: Vec::new(),
        }
    }

    /// Its segments, ascending: those of the checkpoint, those that began since, those that took
    /// the place of others. A trim takes none away, for they may tell of producers.
    pub(super) fn segments(&self) -> Vec<SegmentState> {
        let begun = self.redo.iter().filter_map(|(base, _, redo)| match redo {
            Redo::Roll { created_ms } => Some(SegmentState::empty(*base, *created_ms)),
            _ => None,
        });
        let mut segments: Vec<SegmentState> = begun.chain(self.state.segments.clone()).collect();
        segments.sort_unstable_by_key(|segment| segment.base);
        segments
    }

    /// Offsets at which they begin, ascending.
    pub(super) fn bases(&self) -> Vec<i64> {
        let segments = self.segments().into_iter();
        segments.map(|segment| segment.base).collect()
    }

    /// The file of the segment `base`.
    pub(super) fn path(&self, folder: &str, base: i64) -> Path {
        let told = self.state.segments.iter();
        let told = told.filter(|segment| segment.base == base);
        let generation = told.map(|segment| segment.generation).next();
        layout::segment_file(folder, base, generation.unwrap_or(0), layout::SEGMENT)
    }

    /// Bytes that the segment `base` must have, for the journal could not make them again.
    pub(super) fn bytes_beside_journal(&self, base: i64) -> u64 {
        let told = self.state.segments.iter();
        let told = told.filter(|segment| segment.base == base);
        let direct = self.redo.iter().filter_map(|(of, position, redo)| {
            let is_direct = *of == base && matches!(redo, Redo::Direct { .. });
            is_direct.then(|| position + redo.len())
        });
        let told = told.map(|segment| segment.bytes);
        told.chain(direct).max().unwrap_or(0)
    }

    /// What stood in segments that were replaced needs not be told any more.
    fn replace(&mut self, swap: Swap) {
        let stays = |base: i64| !(swap.from..swap.to).contains(&base);
        self.redo.retain(|(base, ..)| stays(*base));
        self.state.segments.retain(|segment| stays(segment.base));
        let segments = &mut self.state.segments;
        let at = segments.partition_point(|segment| segment.base < swap.from);
        segments.splice(at..at, swap.segments);
        self.state.cleaned_to = swap.cleaned_to;
        self.state.has_sources |= swap.has_sources;
    }
}

/// Everything the journal tells.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) clean: bool,
    pub(super) next_id: u32,
    pub(super) logs: BTreeMap<u32, Told>,
    pub(super) chain: Option<Chain>,
    /// Of the start that reads it.
    pub(super) generation: u64,
}

/// The journal's files, by their sequence numbers.
pub(super) fn journal_files(disk: &impl Disk) -> Result<Vec<u64>, Error> {
    let names = disk.list(layout::JOURNAL)?;
    let sequences = names
        .iter()
        .filter_map(|name| layout::number(name, "journal"));
    Ok(sequences.collect())
}

/// The first file of the newest start. A start writes its first file when all is synced, so the
/// files before it tell nothing that this one does not; a start that died may have left them, and
/// a failed sync before it may have taken their last rounds. Which they are the newest file says:
/// of any other it is damage where it does not verify.
pub(super) fn newest_start(disk: &impl Disk, sequences: &[u64]) -> Result<usize, Error> {
    let Some(newest) = sequences.last() else {
        return Ok(0);
    };
    let header = file_header(disk, &layout::journal_file(*newest))?;
    let first = header.map_or(*newest, |header| header.first.min(*newest));
    Ok(sequences.partition_point(|sequence| *sequence < first))
}

/// Verifies the whole journal and collects what it tells.
pub(super) fn read_journal(disk: &impl Disk, sequences: &[u64]) -> Result<Story, Error> {
    let mut story = Story {
        clean: sequences.is_empty(),
        ..Story::default()
    };
    for (at, sequence) in sequences.iter().enumerate() {
        let path = layout::journal_file(*sequence);
        if at > 0 && sequences[at - 1] + 1 != *sequence {
            let what = "the journal file before it is missing";
            return Err(damage(&path, 0, None, what));
        }
        let mut first = at == 0;
        let walked = walk(disk, &path, *sequence, story.chain, |round| {
            let entries = entries(round.payload).ok_or_else(|| {
                damage(&path, 0, None, "the journal was written by a newer version")
            })?;
            story.clean = false;
            for entry in entries {
                story.tell(entry, *sequence, &round, first);
            }
            first = false;
            Ok(())
        })?;
        story.chain = Some(walked.chain);
        story.generation = walked.generation + 1;
    }
    Ok(story)
}

impl Story {
    /// Forgets the logs of streams whose folder was moved to the trash: that is what deletes. The
    /// folder stays there until the journal has forgotten them too, or for as long as it cannot be
    /// removed: a later stream of its name has later logs, whether the journal knew of those or not,
    /// and goes to another place (the round that moved it may be one that the journal has lost).
    pub(super) fn forget_deleted(&mut self, disk: &impl Disk) -> Result<(), Error> {
        for name in disk.list(layout::TRASH)? {
            if let Some((stream, ids)) = layout::trashed(&name) {
                self.next_id = self.next_id.max(ids.saturating_add(1));
                self.logs
                    .retain(|id, log| log.state.stream != stream || *id >= ids);
            }
        }
        Ok(())
    }

    /// `file` and `round`: where the entry stands.
    fn tell(&mut self, entry: Entry, file: u64, round: &Found, first: bool) {
        match entry {
            Entry::Checkpoint(checkpoint) if first || checkpoint.clean => {
                self.clean = checkpoint.clean;
                self.next_id = self.next_id.max(checkpoint.next_id);
                let told = |state: LogState| {
                    let settled = Told {
                        epochs_settled: state.epochs.has_begun(state.next_offset),
                        ..Told::new(state)
                    };
                    (settled.state.id, settled)
                };
                self.logs = checkpoint.logs.into_iter().map(told).collect();
            }
            // It repeats what the entries before it told.
            Entry::Checkpoint(_) => {}
            Entry::Register {
                id,
                partition,
                incarnation,
                created_ms,
                stream,
            } => {
                self.next_id = self.next_id.max(id + 1);
                let state = LogState {
                    id,
                    stream: stream.to_owned(),
                    partition,
                    incarnation,
                    start_offset: 0,
                    next_offset: 0,
                    cleaned_to: 0,
                    epochs: Epochs::default(),
                    has_sources: false,
                    segments: vec![SegmentState::empty(0, created_ms)],
                };
                self.logs.insert(id, Told::new(state));
            }
            Entry::Delete { stream } => self.logs.retain(|_, log| log.state.stream != stream),
            Entry::Roll {
                id,
                base,
                created_ms,
            } => {
                self.redo(id, base, 0, Redo::Roll { created_ms });
            }
            Entry::Epoch { id, epoch, offset } => {
                if let Some(log) = self.logs.get_mut(&id) {
                    log.state.epochs.begin(epoch, offset);
                    log.epochs_settled = false;
                }
            }
            Entry::Trim { id, start_offset } => {
                if let Some(log) = self.logs.get_mut(&id) {
                    log.state.start_offset = start_offset;
                }
            }
            Entry::Replace { id, swap } => {
                if let Some(log) = self.logs.get_mut(&id) {
                    log.replace(swap);
                }
            }
            Entry::Write {
                id,
                base,
                position,
                at,
                bytes,
            } => {
                let held = Held {
                    file,
                    position: round.place(at),
                    length: bytes.len() as u32,
                };
                self.redo(id, base, position, Redo::Write(held));
            }
            Entry::Direct {
                id,
                base,
                position,
                length,
                crc,
            } => {
                self.redo(id, base, position, Redo::Direct { length, crc });
            }
        }
    }

    fn redo(&mut self, id: u32, base: i64, position: u32, redo: Redo) {
        // A round may carry batches of a log whose deletion the next one tells.
        if let Some(log) = self.logs.get_mut(&id) {
            log.redo.push((base, u64::from(position), redo));
        }
    }
}

impl Redo {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Roll { .. } => 0,
            Self::Write(held) => u64::from(held.length),
            Self::Direct { length, .. } => u64::from(*length),
        }
    }
}

pub(super) fn damage(path: &str, position: u64, offset: Option<i64>, what: &str) -> Error {
    Error::Corrupt(Damage {
        path: path.to_owned(),
        position,
        offset,
        what: what.to_owned(),
    })
}
