//! What the next round commits: the part of the machine that drafts rounds.
//!
//! Deletions come before registrations, those before trims, swaps and appends, and the last of all is the
//! mark of a clean close. A deletion that waits for a chore holds up registrations, which may be of the
//! same name, but no appends of other logs. A round takes what is queued in order, as far as its
//! bounds allow.

use std::collections::BTreeMap;

use super::chore::LET_GO_FILES;
use super::disk::{DiskOp, Path};
use super::journal::{entry_bytes_max, Checkpoint, FileHeader, PAGE};
use super::layout;
use super::machine::{Deletion, Life, Machine};
use super::options::{LOG_STATE_BYTES_MAX, ROUND_BYTES_MAX, STREAM_NAME_BYTES_MAX};
use super::partition::{replace, Log, LogId};
use super::round::{
    group_bytes_max, round_bytes, Draft, Group, Piece, Place, Queued, Rotation, Work,
};

/// Upper bound of an entry that holds numbers alone.
pub(super) const MACHINE_ENTRY_BYTES: u64 = entry_bytes_max(0) as u64;

impl Machine {
    /// What to commit next; None where nothing waits, a round is under way, or the journal waits
    /// for a chore.
    pub fn next_round(&mut self, now_ns: u64) -> Option<Draft> {
        if self.failed.is_some() || self.round_under_way || self.life == Life::Closed {
            return None;
        }
        let draft = self.draft_deletion().or_else(|| self.draft_other(now_ns))?;
        self.round_under_way = true;
        Some(draft)
    }

    /// When a round is due for the sake of the clock, or None.
    pub fn wake_at_ns(&self) -> Option<u64> {
        let idle = !self.round_under_way && self.life != Life::Closed;
        let waits = idle && self.failed.is_none();
        self.journal.sync_at_ns.filter(|_| waits)
    }

    fn draft_other(&mut self, now_ns: u64) -> Option<Draft> {
        let deletes = !self.deletions.is_empty();
        let waits = !self.registrations.is_empty()
            || !self.trims.is_empty()
            || self.submitted > 0
            || self.replacement.is_some();
        let draft = if !self.registrations.is_empty() && !deletes {
            self.draft_registrations()
        } else if !self.trims.is_empty() {
            self.draft_trims()
        } else if let Some(draft) = self.draft_replacement() {
            Some(draft)
        } else if self.submitted > 0 {
            self.draft_appends(now_ns)
        } else {
            None
        };
        if draft.is_some() || self.failed.is_some() {
            return draft;
        }
        if self.journal.is_sync_due(now_ns) {
            return Some(Draft::at(self.here())); // it writes nothing
        }
        if self.life == Life::Closing && !deletes && !waits {
            return self.draft_close();
        }
        None
    }

    fn draft_appends(&mut self, now_ns: u64) -> Option<Draft> {
        let ready = self.ready();
        let (count, bytes) = self.select(ready);
        if count == 0 {
            return None; // a roll waits for a chore, or logs for a deletion
        }
        let place = if bytes == 0 {
            self.here() // nothing but repeats
        } else {
            self.place(bytes)?
        };
        let items: Vec<Queued> = self.queue.drain(..count).collect();
        self.submitted -= count;
        let groups = self.groups(&items);
        // A repeat is as durable as it asks once what it repeats is.
        let asked = items.iter().any(|item| item.sync_at_ns == Some(0))
            && !(groups.is_empty() && self.journal.is_synced());
        // Before a page is written to that holds something durable, the journal can rebuild it.
        // And where a segment begins, the one before may go, for good. The file of epochs is written
        // over once the journal tells of another, whatever the disk loses then.
        let needed = |group: &Group| {
            let begins = group.roll.is_some() || !group.epochs.is_empty();
            group.direct || !group.page_logged || begins
        };
        let sync = asked
            || place.rotation.is_some()
            || groups.iter().any(needed)
            || self.journal.is_sync_due(now_ns);
        Some(Draft {
            pieces: groups.into_iter().map(Piece::Group).collect(),
            items,
            sync,
            ..Draft::at(place)
        })
    }

    /// How many at the front of the queue belong to logs that the journal knows. Those of others,
    /// which wait for a deletion that waits for a chore, step back behind them.
    fn ready(&mut self) -> usize {
        if self.registrations.is_empty() {
            return self.submitted;
        }
        let submitted = self.queue.drain(..self.submitted);
        let (waits, ready): (Vec<_>, Vec<_>) =
            submitted.partition(|item| self.registrations.contains(&item.log));
        let count = ready.len();
        for item in ready.into_iter().chain(waits).rev() {
            self.queue.push_front(item);
        }
        count
    }

    /// How many of the `ready` appends the next round takes, and the journal bytes they need at
    /// most.
    fn select(&self, ready: usize) -> (usize, u64) {
        let limit = self.options.round_need_max();
        let need = |bytes: u64| group_bytes_max(bytes, self.options.is_direct(bytes));
        let mut groups = BTreeMap::new();
        let (mut journal, mut total) = (0, 0);
        let mut rolls = self.rolls_left();
        for (count, item) in self.queue.iter().take(ready).enumerate() {
            let Some(segment) = item.work.segment() else {
                continue;
            };
            if matches!(item.work, Work::Roll(_)) {
                if rolls == 0 {
                    return (count, journal);
                }
                rolls -= 1;
            }
            let bytes = item.work.bytes();
            let group: Option<&u64> = groups.get(&(item.log, segment));
            let before = group.map_or(0, |group| need(*group));
            let grown = group.copied().unwrap_or(0) + bytes;
            let epoch = item.work.epoch().map_or(0, |_| MACHINE_ENTRY_BYTES);
            let with = journal - before + need(grown) + epoch;
            if journal > 0 && (with > limit || total + bytes > ROUND_BYTES_MAX) {
                return (count, journal);
            }
            groups.insert((item.log, segment), grown);
            total += bytes;
            journal = with;
        }
        (ready, journal)
    }

    fn groups(&self, items: &[Queued]) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut at = BTreeMap::new();
        for item in items {
            let Some(segment) = item.work.segment() else {
                continue;
            };
            let place = *at.entry((item.log, segment)).or_insert_with(|| {
                groups.push(self.group(item, segment));
                groups.len() - 1
            });
            if let Work::Run(run) = &item.work {
                let group = &mut groups[place];
                group
                    .epochs
                    .extend(run.epoch.map(|epoch| (epoch, group.next_offset)));
                group.parts.push(run.bytes.clone());
                group.bytes += run.bytes.len() as u64;
                group.next_offset = run.next_offset;
            }
        }
        for group in &mut groups {
            if !group.epochs.is_empty() {
                let log = &self.logs[&group.log];
                let path = layout::epochs(&log.folder);
                replace(&mut group.epochs_file, path, log.epochs.file());
            }
            group.direct = self.options.is_direct(group.bytes);
        }
        groups
    }

    fn group(&self, first: &Queued, segment: i64) -> Group {
        let log = &self.logs[&first.log];
        let (position, next_offset, roll) = match &first.work {
            Work::Run(run) => (run.position, log.high_watermark, None),
            Work::Roll(roll) => (0, segment, Some(roll.clone())),
            Work::Repeat => unreachable!("it writes to no segment"),
        };
        let unsynced =
            |path: &Path| self.dirt.folders.contains(path) || self.syncing.folders.contains(path);
        let mut folders: Vec<Path> = [
            log.folder.clone(),
            layout::stream_folder(&log.stream),
            layout::STREAMS.into(),
        ]
        .into_iter()
        .filter(unsynced)
        .collect();
        if roll.is_some() && !folders.contains(&log.folder) {
            folders.push(log.folder.clone());
        }
        let begins = position % PAGE as u64 == 0;
        Group {
            log: log.id,
            segment,
            path: layout::file(&log.folder, segment, layout::SEGMENT),
            folders,
            position,
            parts: Vec::new(),
            bytes: 0,
            next_offset,
            epochs: Vec::new(),
            epochs_file: Vec::new(),
            roll,
            page: if begins { Vec::new() } else { log.tail.clone() },
            page_logged: begins || log.page_logged,
            direct: false,
        }
    }

    /// All logs of one stream, so that a disk that refuses one of them refuses all. They fit: a
    /// checkpoint with them was to fit half a journal file.
    fn draft_registrations(&mut self) -> Option<Draft> {
        let stream = self.logs[self.registrations.first()?].stream.clone();
        let is_its = |id: &LogId| self.logs[id].stream == stream;
        let (ids, others): (Vec<LogId>, Vec<LogId>) =
            self.registrations.iter().copied().partition(is_its);
        let place = self.place(ids.len() as u64 * LOG_STATE_BYTES_MAX)?;
        self.registrations = others;
        let logs = ids.iter().map(|id| &self.logs[id]);
        let pieces = logs
            .clone()
            .map(|log| Piece::Register {
                log: log.id,
                partition: log.partition,
                incarnation: log.incarnation,
                created_ms: log.segments[0].created_ms,
                stream: log.stream.clone(),
            })
            .collect();
        let first: Vec<DiskOp> = logs.flat_map(Log::creation).collect();
        Some(Draft {
            attempts: first.len(),
            first,
            pieces,
            ..Draft::at(place)
        })
    }

    /// Renaming the folder is what deletes; the journal's entry keeps what it holds from coming
    /// back; the rest is removed at leisure, by who asked, or by the next start.
    fn draft_deletion(&mut self) -> Option<Draft> {
        if self.chore_under_way {
            return None; // it may be syncing files of this stream
        }
        let Deletion {
            stream,
            below,
            holds_records,
        } = self.deletions.front()?.clone();
        let place = self.place(STREAM_NAME_BYTES_MAX as u64)?;
        let folder = layout::stream_folder(&stream);
        let trash = layout::trash_folder(&stream, below, self.journal.chain.round, self.next_id);
        // Until it is durable that the stream is gone, the journal may have to make its files again.
        self.round_is_alone = true;
        let inside = |path: &Path| path.starts_with(&format!("{folder}/"));
        self.dirt.files.retain(|path| !inside(path));
        self.dirt.finished.retain(|path| !inside(path));
        self.dirt
            .folders
            .retain(|path| !inside(path) && *path != folder);
        let first = vec![
            // A stream without records may have no folder yet.
            DiskOp::CreateFolder {
                path: folder.clone(),
            },
            DiskOp::Rename {
                from: folder,
                to: trash.clone(),
            },
            DiskOp::SyncFolder {
                path: layout::STREAMS.into(),
            },
            DiskOp::SyncFolder {
                path: layout::TRASH.into(),
            },
        ];
        let mut logs = self.logs.values().filter(|log| log.stream == stream);
        let is_known = holds_records || logs.any(|log| log.registered);
        Some(Draft {
            attempts: if is_known { 0 } else { first.len() },
            first,
            pieces: vec![Piece::Delete {
                stream: stream.clone(),
            }],
            deleted: Some((stream, trash)),
            ..Draft::at(place)
        })
    }

    fn draft_close(&mut self) -> Option<Draft> {
        if self.chore_under_way {
            return None;
        }
        let checkpoint_bytes = self.checkpoint(true).encode().len() as u64;
        let place = self.place(checkpoint_bytes)?;
        let mut first = Vec::new();
        let logs = self.logs.values_mut();
        for log in logs.filter(|log| log.wants_side_files()) {
            first.extend(log.side_files());
            log.snapshot_taken(log.next_offset);
        }
        // A journal file that were released beside it would go before what it can make again is synced.
        self.round_is_alone = true;
        let mut dirt = std::mem::take(&mut self.dirt);
        dirt.note(&first);
        let obsolete = self.obsolete(LET_GO_FILES); // the next start finds the rest
        dirt.files.retain(|path| !obsolete.contains(path));
        first.extend(dirt.syncs());
        first.extend(obsolete.into_iter().map(|path| DiskOp::LetGo { path }));
        let checkpoint = self.checkpoint(true).encode(); // which vouches for the files just made
        Some(Draft {
            first,
            pieces: vec![Piece::Checkpoint(checkpoint)],
            closes: true,
            ..Draft::at(place)
        })
    }

    fn here(&self) -> Place {
        let journal = &self.journal;
        Place {
            path: journal.path.clone(),
            position: journal.position,
            chain: journal.chain,
            seed: journal.header.seed(),
            synced: journal.synced,
            rotation: None,
        }
    }

    /// A place in the journal for entries of `bytes`; None while a full journal has no other file.
    pub(super) fn place(&mut self, bytes: u64) -> Option<Place> {
        let mut place = self.here();
        let journal = &self.journal;
        if journal.position + round_bytes(bytes) <= self.options.journal_bytes {
            return Some(place);
        }
        if !journal.spare {
            return None;
        }
        let sequence = journal.header.sequence + 1;
        let rotation = Rotation {
            header: FileHeader {
                sequence,
                bytes: self.options.journal_bytes,
                generation: journal.header.generation,
                first: journal.header.first,
                began: journal.chain,
            },
            path: layout::journal_file(sequence),
            checkpoint: self.checkpoint(false).encode(),
        };
        let fresh = PAGE as u64 + round_bytes(rotation.checkpoint.len() as u64);
        if fresh + round_bytes(bytes) > self.options.journal_bytes {
            let segments = self.segments;
            self.fail(&format!(
                "a checkpoint of {} logs with {segments} segments does not fit the journal: \
                 raise journal_bytes",
                self.logs.len()
            ));
            return None;
        }
        place.rotation = Some(rotation);
        // The new file must be able to rebuild every page that is written from now on.
        for log in self.logs.values_mut() {
            log.page_logged = false;
        }
        Some(place)
    }

    pub(super) fn checkpoint(&self, clean: bool) -> Checkpoint {
        Checkpoint {
            clean,
            next_id: self.next_id,
            logs: self
                .logs
                .values()
                .filter(|log| log.registered)
                .map(Log::state)
                .collect(),
        }
    }
}

impl Draft {
    pub(super) fn at(place: Place) -> Self {
        Self {
            first: Vec::new(),
            attempts: 0,
            pieces: Vec::new(),
            place,
            sync: true,
            items: Vec::new(),
            deleted: None,
            closes: false,
        }
    }
}
