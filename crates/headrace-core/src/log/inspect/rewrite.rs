//! The repair of one log: its files become what a checkpoint can tell.

use super::examine::{examine, expected, replay, Seen};
use super::repair::{Action, Consent};
use super::snapshots;
use super::verify::{found, has_epochs_file, Class};
use crate::log::disk::{Disk, DiskOp, Path};
use crate::log::epochs::Epochs;
use crate::log::error::Error;
use crate::log::index;
use crate::log::journal::{LogState, SegmentState};
use crate::log::layout;
use crate::log::options::Options;
use crate::log::partition::replace;
use crate::log::scan;
use crate::log::segment::SEGMENT_BYTES_MAX;
use crate::log::story::Told;
use crate::record::{placeholder, set_base_offset, set_leader_epoch, HEADER_BYTES};

/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// What is asked of it.
pub(super) struct Work<'a, D> {
    pub(super) disk: &'a D,
    pub(super) options: Options,
    pub(super) consent: Consent,
    /// The journal tells where the log ends.
    pub(super) certain: bool,
    /// Else only what the journal holds of it is brought home.
    pub(super) wanted: bool,
    pub(super) actions: &'a mut Vec<Action>,
}

impl<D: Disk> Work<'_, D> {
    /// The log as a checkpoint tells it, once its files are so.
    pub(super) fn mend(&mut self, told: &Told, clean: bool) -> Result<LogState, Error> {
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
            if has_epochs_file(told, self.certain, clean) {
                self.epochs_file(&folder, &told.state)?;
            }
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
        let fresh = layout::unfinished(&seen.path);
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
        if scan::side_file(self.disk, &epochs)? != wanted {
            self.note(&epochs, "is written anew".into(), None, false);
            let mut ops = Vec::new();
            replace(&mut ops, epochs.clone(), wanted);
            ops.push(DiskOp::Sync { path: epochs });
            self.perform(ops)?;
        }
        Ok(())
    }
}
