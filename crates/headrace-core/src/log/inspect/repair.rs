//! Making a damaged folder one that a start accepts and serves.

use std::collections::{BTreeMap, BTreeSet};

use super::examine::{examine, expected, replay, Seen};
use super::holes::Holes;
use super::overlay::Overlay;
use super::snapshots;
use super::story::{adopt, Files};
use super::verify::{found, refusal, strangers, Class};
use crate::log::disk::{Disk, DiskOp, Path};
use crate::log::epochs::Epochs;
use crate::log::error::{Damage, Error};
use crate::log::index;
use crate::log::journal::{Chain, FileHeader, LogState, SegmentState};
use crate::log::layout;
use crate::log::mend::Mender;
use crate::log::options::Options;
use crate::log::partition::{replace, Log};
use crate::log::recovery::begin;
use crate::log::scan;
use crate::log::segment::SEGMENT_BYTES_MAX;
use crate::log::story::Told;
use crate::record::{placeholder, set_base_offset, set_leader_epoch, HEADER_BYTES};

/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// What may be given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// Batches that cannot be read.
    pub drop_damaged: bool,
    /// What the journal told of the ends of logs: they end where their last sound batch does.
    pub rebuild_journal: bool,
}

/// One thing that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The file that changes.
    pub path: String,
    /// What happens to it.
    pub what: String,
    /// Offsets that cannot be read any more: the first, and the one after them.
    pub lost: Option<(i64, i64)>,
    /// Something goes that nothing else holds: keep a copy of the file first.
    pub backup: bool,
}

/// Repairs the logs that `wanted` (stream, partition) asks for, or says what that would do (`dry`).
/// Nothing is done where there is nothing to repair. A new journal begins, so that a start must
/// accept the other logs as they are.
///
/// Damage that `consent` does not cover is an error, and the caller tries it dry first, so that
/// nothing has changed then.
pub fn repair(
    disk: &impl Disk,
    options: Options,
    incarnations: &BTreeMap<String, u64>,
    wanted: impl Fn(&str, u32) -> bool,
    consent: Consent,
    dry: bool,
) -> Result<Vec<Action>, Error> {
    let disk = &Holes(disk);
    let files = Files::read(disk)?;
    if dry {
        let overlay = Overlay::new(disk);
        let mended = mend_all(&overlay, options, &files, incarnations, wanted, consent)?;
        return Ok(mended.actions);
    }
    for folder in [layout::STREAMS, layout::JOURNAL, layout::TRASH] {
        disk.perform(&DiskOp::CreateFolder {
            path: folder.into(),
        })?;
    }
    disk.perform(&DiskOp::SyncFolder { path: "".into() })?;
    let mended = mend_all(disk, options, &files, incarnations, wanted, consent)?;
    if mended.actions.is_empty() {
        return Ok(mended.actions);
    }
    let sequence = files.sequences.last().map_or(0, |last| last + 1);
    let header = FileHeader {
        sequence,
        bytes: options.journal_bytes,
        generation: mended.generation,
        first: sequence,
        began: mended.chain,
    };
    begin(
        disk,
        options,
        mended.logs,
        mended.next_id,
        header,
        &files.sequences,
    )?;
    Ok(mended.actions)
}

struct Mended {
    actions: Vec<Action>,
    logs: Vec<Log>,
    next_id: u32,
    generation: u64,
    chain: Chain,
}

fn mend_all(
    disk: &impl Disk,
    options: Options,
    files: &Files,
    incarnations: &BTreeMap<String, u64>,
    wanted: impl Fn(&str, u32) -> bool,
    consent: Consent,
) -> Result<Mended, Error> {
    let mut actions = Vec::new();
    let whole = files.story(disk)?;
    let certain = whole.is_ok();
    let mut story = match whole {
        Ok(story) => story,
        Err(damage) if !consent.rebuild_journal => return Err(Error::Corrupt(damage)),
        Err(damage) => {
            for sequence in &files.sequences {
                actions.push(Action {
                    path: layout::journal_file(*sequence).to_string(),
                    what: format!("is replaced by a new journal: {}", damage.what),
                    lost: None,
                    backup: true,
                });
            }
            files.best_story(disk)
        }
    };
    story.forget_deleted(disk)?;
    if !consent.rebuild_journal {
        let mut unknown = Vec::new();
        strangers(disk, &story.logs, incarnations, &mut unknown)?;
        if let Some(finding) = unknown.pop() {
            return Err(Error::Corrupt(finding.damage));
        }
    }
    let known: BTreeSet<u32> = story.logs.keys().copied().collect();
    if consent.rebuild_journal {
        for told in story.logs.values().filter(|_| !certain) {
            replay(disk, told, &expected(disk, told, false)?)?;
        }
        adopt(disk, &mut story, incarnations, !certain)?;
    }
    let mut mender = Mender::new(disk, options, false);
    let mut logs = Vec::new();
    for (id, told) in &story.logs {
        let of_journal = certain && known.contains(id);
        let state = &told.state;
        if !incarnations.contains_key(&state.stream)
            && disk.list(&layout::stream_folder(&state.stream))?.is_empty()
        {
            let wanted = wanted(&state.stream, state.partition);
            actions.push(forget(state, wanted && consent.drop_damaged)?);
            continue;
        }
        if !of_journal && !known.contains(id) {
            actions.push(Action {
                path: layout::log_folder(&told.state.stream, told.state.partition).to_string(),
                what: "is made known to the journal".into(),
                lost: None,
                backup: false,
            });
        }
        let before = actions.len();
        let mut work = Work {
            disk,
            options,
            consent,
            certain: of_journal,
            wanted: wanted(&told.state.stream, told.state.partition),
            actions: &mut actions,
        };
        let state = work.mend(told, story.clean)?;
        let mut refused = None;
        if actions.len() == before {
            refused = refusal(disk, options, told, story.clean)?;
        }
        let log = if wanted(&told.state.stream, told.state.partition) {
            let mut log = mender.salvage(&Told::new(state))?;
            actions.extend(mender.forgotten().map(snapshots::made_up));
            actions.extend(snapshots::keep_sources(disk, &mut log)?);
            log
        } else {
            mender.mend(&Told::new(state))?
        };
        if actions.len() == before {
            actions.extend(refused.map(|damage| Action {
                path: damage.path,
                what: format!("is taken as it is into a new journal: {}", damage.what),
                lost: None,
                backup: false,
            }));
        }
        logs.push(log);
    }
    mender.finish()?;
    Ok(Mended {
        actions,
        logs,
        next_id: story.next_id,
        generation: story.generation,
        chain: story.chain.unwrap_or(Chain {
            round: 0,
            crc: options.seed,
        }),
    })
}

/// The log of a stream whose folder is gone, and its definition with it.
fn forget(state: &LogState, may: bool) -> Result<Action, Error> {
    let path = layout::log_folder(&state.stream, state.partition).to_string();
    let (start, next) = (state.start_offset, state.next_offset);
    if may {
        return Ok(Action {
            path,
            what: "is forgotten: the stream's folder and its definition are gone".into(),
            lost: (next > start).then_some((start, next)),
            backup: false,
        });
    }
    Err(Error::Corrupt(Damage {
        path,
        position: 0,
        offset: Some(start),
        what: "the stream's folder and its definition are gone; --drop-damaged forgets it".into(),
    }))
}

/// The repair of one log.
struct Work<'a, D> {
    disk: &'a D,
    options: Options,
    consent: Consent,
    /// The journal tells where the log ends.
    certain: bool,
    /// Else only what the journal holds of it is brought home.
    wanted: bool,
    actions: &'a mut Vec<Action>,
}

impl<D: Disk> Work<'_, D> {
    /// The log as a checkpoint tells it, once its files are so.
    fn mend(&mut self, told: &Told, clean: bool) -> Result<LogState, Error> {
        let folder = layout::log_folder(&told.state.stream, told.state.partition);
        self.make_folders(&told.state)?;
        let segments = expected(self.disk, told, self.certain)?;
        let restored = replay(self.disk, told, &segments)?;
        if restored > 0 {
            let what = format!("gets {restored} batches back from the journal");
            self.note(&folder, what, None, false);
        }
        let mut state = LogState {
            segments: Vec::new(),
            ..told.state.clone()
        };
        for segment in segments {
            let seen = examine(self.disk, &folder, segment, &told.state.epochs, clean)?;
            state.next_offset = seen.survey.next.max(told.state.next_offset);
            state
                .segments
                .push(self.segment(&folder, &seen, &told.state.epochs)?);
        }
        if self.wanted {
            self.actions
                .extend(snapshots::drop_damaged(self.disk, &folder)?);
            self.epochs_file(&folder, &told.state)?;
        }
        Ok(state)
    }

    /// Those that are missing: what is lost with them, their segments tell.
    fn make_folders(&self, state: &LogState) -> Result<(), Error> {
        let stream = Path::from(layout::stream_folder(&state.stream));
        if !self
            .disk
            .list(&stream)?
            .contains(&state.partition.to_string())
        {
            let path = layout::log_folder(&state.stream, state.partition);
            let streams = Path::from(layout::STREAMS);
            self.perform([
                DiskOp::CreateFolder {
                    path: stream.clone(),
                },
                DiskOp::CreateFolder { path },
                DiskOp::SyncFolder { path: streams },
                DiskOp::SyncFolder { path: stream },
            ])?;
        }
        Ok(())
    }

    fn note(&mut self, path: &str, what: String, lost: Option<(i64, i64)>, backup: bool) {
        self.actions.push(Action {
            path: path.to_owned(),
            what,
            lost,
            backup,
        });
    }

    fn perform(&self, ops: impl IntoIterator<Item = DiskOp>) -> Result<(), Error> {
        for op in ops {
            self.disk.perform(&op)?;
        }
        Ok(())
    }

    fn segment(
        &mut self,
        folder: &str,
        seen: &Seen,
        epochs: &Epochs,
    ) -> Result<SegmentState, Error> {
        let mut state = seen.expected.state;
        if !self.wanted {
            return Ok(state);
        }
        if seen.size.is_none() {
            self.perform([DiskOp::Create {
                path: seen.path.clone(),
            }])?;
        }
        self.stamp(seen, epochs)?;
        let tail = self.torn_tail(seen);
        if let Some(bytes) = tail {
            let what = format!("is cut at byte {bytes}, behind its last sound batch");
            self.note(&seen.path, what, None, true);
            self.cut(&seen.path, bytes)?;
            state.bytes = bytes;
        } else if seen.survey.lost.is_empty() {
            self.cut_excess(seen)?;
        } else {
            state.bytes = self.drop_damaged(folder, seen, epochs)?;
        }
        let changed = tail.is_some() || !seen.survey.lost.is_empty();
        if changed || seen.index.is_some() || !seen.survey.stamps.is_empty() {
            state.index_crc = self.index(folder, &state, seen)?;
        }
        Ok(state)
    }

    fn stamp(&mut self, seen: &Seen, epochs: &Epochs) -> Result<(), Error> {
        for (position, offset) in &seen.survey.stamps {
            let mut header = self.disk.read(&seen.path, *position, HEADER_BYTES)?;
            set_base_offset(&mut header, *offset);
            if let Some(epoch) = epochs.at(*offset) {
                set_leader_epoch(&mut header, epoch);
            }
            let what = format!("the batch at byte {position} gets its offset {offset} back");
            self.note(&seen.path, what, None, true);
            self.perform([
                DiskOp::Write {
                    path: seen.path.clone(),
                    position: *position,
                    data: header.into(),
                },
                DiskOp::Sync {
                    path: seen.path.clone(),
                },
            ])?;
        }
        Ok(())
    }

    /// Where the log is cut: nobody knows of anything behind it.
    fn torn_tail(&self, seen: &Seen) -> Option<u64> {
        let [lost] = &seen.survey.lost[..] else {
            return None;
        };
        let unknown = !self.certain && seen.expected.active && lost.first == lost.next;
        unknown.then_some(lost.position)
    }

    fn cut_excess(&mut self, seen: &Seen) -> Result<(), Error> {
        let bytes = seen.expected.state.bytes;
        if !seen.expected.active && seen.size.is_some_and(|size| size > bytes) {
            let what = format!("is cut at byte {bytes}, where its last batch ends");
            self.note(&seen.path, what, None, true);
            self.cut(&seen.path, bytes)?;
        }
        Ok(())
    }

    fn cut(&self, path: &Path, bytes: u64) -> Result<(), Error> {
        self.perform([
            DiskOp::SetLength {
                path: path.clone(),
                bytes,
            },
            DiskOp::Sync { path: path.clone() },
        ])
    }

    /// Writes the segment anew without what cannot be read; returns its length.
    fn drop_damaged(&mut self, folder: &str, seen: &Seen, epochs: &Epochs) -> Result<u64, Error> {
        if !self.consent.drop_damaged {
            let finding = found(seen)
                .into_iter()
                .find(|finding| finding.class == Class::Records);
            let damage = finding.expect("a segment that lost records").damage;
            return Err(Error::Corrupt(damage));
        }
        let fresh: Path = format!("{}.fresh", seen.path).into();
        let mut position = 0;
        let mut copied = 0;
        self.perform([
            DiskOp::Create {
                path: fresh.clone(),
            },
            DiskOp::SetLength {
                path: fresh.clone(),
                bytes: 0,
            },
        ])?;
        for lost in &seen.survey.lost {
            position = self.copy(&seen.path, copied..lost.position, &fresh, position)?;
            let epoch = epochs.at(lost.first).unwrap_or_default();
            let stand_in = placeholder(lost.first, lost.next, epoch);
            let bytes = stand_in.len() as u64;
            self.write(&fresh, position, stand_in)?;
            position += bytes;
            copied = lost.position + lost.bytes;
            let what = format!("{} bytes from byte {} go", lost.bytes, lost.position);
            let offsets = (lost.next > lost.first).then_some((lost.first, lost.next));
            self.note(&seen.path, what, offsets, true);
        }
        let end = seen.size.unwrap_or(0).min(seen.expected.state.bytes);
        position = self.copy(&seen.path, copied..end, &fresh, position)?;
        if seen.expected.active {
            // What stands behind may have been acknowledged; recovery judges that.
            let size = seen.size.unwrap_or(end).min(SEGMENT_BYTES_MAX);
            self.copy(&seen.path, end..size, &fresh, position)?;
        }
        self.perform([
            DiskOp::Sync {
                path: fresh.clone(),
            },
            DiskOp::Close {
                path: fresh.clone(),
            },
            DiskOp::Rename {
                from: fresh,
                to: seen.path.clone(),
            },
            DiskOp::SyncFolder {
                path: folder.into(),
            },
        ])?;
        Ok(position)
    }

    fn copy(
        &self,
        from: &Path,
        range: std::ops::Range<u64>,
        to: &Path,
        mut position: u64,
    ) -> Result<u64, Error> {
        let mut at = range.start;
        while at < range.end {
            let bytes = self
                .disk
                .read(from, at, COPY_BYTES.min(range.end - at) as usize)?;
            let count = bytes.len() as u64;
            self.write(to, position, bytes)?;
            at += count;
            position += count;
        }
        Ok(position)
    }

    fn write(&self, path: &Path, position: u64, bytes: Vec<u8>) -> Result<(), Error> {
        self.perform([DiskOp::Write {
            path: path.clone(),
            position,
            data: bytes.into(),
        }])
    }

    /// The indexes of a closed segment are written anew; those of the active one go, and the next
    /// start makes them in memory. Returns their CRC.
    fn index(
        &mut self,
        folder: &str,
        state: &SegmentState,
        seen: &Seen,
    ) -> Result<Option<u32>, Error> {
        let files = state.files(folder);
        let paths = [layout::INDEX, layout::TIME_INDEX].map(|kind| files.path(kind));
        if let Some((path, _)) = &seen.index {
            self.note(path, "is built anew from its segment".into(), None, false);
        }
        if seen.expected.active {
            self.perform(paths.map(|path| DiskOp::Remove { path }))?;
            return Ok(None);
        }
        let interval = self.options.index_interval_bytes;
        let (offsets, times) = files.rebuild(self.disk, interval)?.encode();
        let crc = index::crc(&offsets, &times);
        for (path, bytes) in paths.into_iter().zip([offsets, times]) {
            let mut ops = Vec::new();
            replace(&mut ops, path.clone(), bytes);
            ops.push(DiskOp::Sync { path });
            self.perform(ops)?;
        }
        Ok(Some(crc))
    }

    fn epochs_file(&mut self, folder: &str, told: &LogState) -> Result<(), Error> {
        let epochs = layout::epochs(folder);
        let wanted = told.epochs.file();
        if told.next_offset > 0 && scan::side_file(self.disk, &epochs)? != wanted {
            self.note(&epochs, "is written anew".into(), None, false);
            let mut ops = Vec::new();
            replace(&mut ops, epochs.clone(), wanted);
            ops.push(DiskOp::Sync { path: epochs });
            self.perform(ops)?;
        }
        Ok(())
    }
}
