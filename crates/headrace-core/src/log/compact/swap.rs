//! The swap of segments for their compacted form: a round of the journal is the moment.

use super::pass::{Group, Survey};
use crate::log::chore::Dirt;
use crate::log::disk::DiskOp;
use crate::log::draft::MACHINE_ENTRY_BYTES;
use crate::log::error::Error;
use crate::log::journal::Swap;
use crate::log::layout;
use crate::log::machine::Machine;
use crate::log::options::SEGMENT_STATE_BYTES;
use crate::log::partition::{Log, LogId};
use crate::log::round::{Draft, Piece};
use crate::log::segment::Segment;

/// Segments that were written and synced, to take the place of others.
#[derive(Debug)]
pub struct Replacement {
    pub(super) log: LogId,
    /// Base and generation of those that go.
    pub(super) old: Vec<(i64, u32)>,
    /// The first segment that stays after them begins there.
    pub(super) to: i64,
    pub(super) cleaned_to: i64,
    /// Those that come; the first begins where the first of the old ones did.
    pub(super) segments: Vec<Segment>,
}

impl Machine {
    /// Queues that segments take the place of others; false where those are not there any more.
    ///
    /// # Panics
    /// Where another replacement is under way.
    pub fn replace(&mut self, replacement: Replacement) -> Result<bool, Error> {
        self.refuse_writes()?;
        assert!(self.replacement.is_none(), "one compaction at a time");
        let fits = self.holds(replacement.log, &replacement.old);
        if fits {
            self.replacement = Some(replacement);
        }
        Ok(fits)
    }

    /// A replacement is queued or under way.
    pub fn is_replacing(&self) -> bool {
        self.replacement.is_some()
    }

    /// The segments that a pass wrote of a group are in their place.
    pub fn has_replaced(&self, survey: &Survey, group: &Group) -> bool {
        let (log, base, generation) = survey.output(group);
        let mut segments = self
            .logs
            .get(&log)
            .into_iter()
            .flat_map(|log| &log.segments);
        segments.any(|segment| (segment.base, segment.generation) == (base, generation))
    }

    /// What a pass makes of a group would not find its place any more.
    pub fn is_overtaken(&self, survey: &Survey, group: &Group) -> bool {
        let (log, old) = survey.input(group);
        !self.holds(log, &old)
    }

    /// What a pass wrote of a group is nobody's and may be removed. Of a store that has failed
    /// nobody knows: the round that swaps may be durable. Its next start knows.
    pub fn is_abandoned(&self, survey: &Survey, group: &Group) -> bool {
        self.failed.is_none() && !self.has_replaced(survey, group)
    }

    /// The log takes appends.
    pub fn is_live(&self, log: LogId) -> bool {
        self.refuse_writes().is_ok() && self.has_log(log)
    }

    /// The log is there, and its stream is not on its way out.
    pub fn has_log(&self, log: LogId) -> bool {
        self.logs.contains_key(&log) && !self.deleted.contains(&log)
    }

    /// The log is there, with these segments.
    fn holds(&self, log: LogId, old: &[(i64, u32)]) -> bool {
        let log = self.logs.get(&log);
        log.is_some_and(|log| !self.deleted.contains(&log.id) && log.holds(old))
    }

    pub(in crate::log) fn draft_replacement(&mut self) -> Option<Draft> {
        let replacement = self.replacement.as_ref()?;
        if !self.holds(replacement.log, &replacement.old) {
            self.replacement = None; // a trim or a deletion overtook it
            return None;
        }
        let segments = replacement.segments.iter().map(Segment::state);
        let swap = Swap {
            from: replacement.old[0].0,
            to: replacement.to,
            cleaned_to: replacement.cleaned_to,
            has_sources: self.logs[&replacement.log].saved_sources.has_any,
            segments: segments.collect(),
        };
        let log = replacement.log;
        let states = swap.segments.len() as u64 * SEGMENT_STATE_BYTES;
        let place = self.place(MACHINE_ENTRY_BYTES + 1 + states)?;
        Some(Draft {
            first: self.producers_synced(log),
            pieces: vec![Piece::Replace { log, swap }],
            ..Draft::at(place)
        })
    }

    /// Compaction leaves of each producer the last batch alone: the snapshot that tells of those
    /// before it is durable before they go.
    fn producers_synced(&self, id: LogId) -> Vec<DiskOp> {
        let log = &self.logs[&id];
        let Some(newest) = log.snapshots.last() else {
            return Vec::new();
        };
        let path = layout::file(&log.folder, *newest, layout::PRODUCERS);
        let waits = |is_due: &dyn Fn(&Dirt) -> bool| is_due(&self.dirt) || is_due(&self.syncing);
        let folder = waits(&|dirt| dirt.folders.contains(&log.folder));
        let folder = folder.then(|| DiskOp::SyncFolder {
            path: log.folder.clone(),
        });
        let file = waits(&|dirt| dirt.files.contains(&path));
        let file = file.then_some(DiskOp::Sync { path });
        file.into_iter().chain(folder).collect()
    }

    /// The journal tells of the replacement that was drafted.
    pub(in crate::log) fn replaced(&mut self) {
        let Some(replacement) = self.replacement.take() else {
            return; // the store has failed since it was drafted
        };
        let id = replacement.log;
        let fresh: Vec<i64> = replacement
            .segments
            .iter()
            .map(|fresh| fresh.base)
            .collect();
        self.indexes.retain(|(log, base, bytes)| {
            let goes = *log == id && replacement.old.iter().any(|(old, _)| old == base);
            self.index_bytes -= if goes { *bytes } else { 0 };
            !goes
        });
        if let Some(log) = self.logs.get_mut(&id) {
            log.replace(replacement);
        }
        for base in fresh {
            self.keep_index(id, base);
        }
        self.has_shed = true;
        self.count_segments();
        self.shed(id);
    }
}

impl Log {
    fn at(&self, old: &[(i64, u32)]) -> usize {
        self.segments
            .partition_point(|segment| segment.base < old[0].0)
    }

    /// These segments, one after the other.
    fn holds(&self, old: &[(i64, u32)]) -> bool {
        let found = self.segments[self.at(old)..].iter();
        let found = found.map(|segment| (segment.base, segment.generation));
        found.take(old.len()).eq(old.iter().copied())
    }

    fn replace(&mut self, replacement: Replacement) {
        let at = self.at(&replacement.old);
        let place = at..at + replacement.old.len();
        for old in self.segments.splice(place, replacement.segments) {
            self.obsolete.extend(old.files(&self.folder));
        }
        self.cleaned_to = replacement.cleaned_to;
        self.edition += 1;
    }
}
