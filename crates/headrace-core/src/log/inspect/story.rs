//! The journal of a stopped store, as far as it can be read.

use std::collections::BTreeMap;

use super::examine;
use crate::log::disk::Disk;
use crate::log::error::{Damage, Error};
use crate::log::journal::file_header;
use crate::log::layout;
use crate::log::story::{journal_files, newest_start, read_journal, Story, Told};

/// The journal's files.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) sequences: Vec<u64>,
}

impl Files {
    pub(super) fn read(disk: &impl Disk) -> Result<Self, Error> {
        let sequences = journal_files(disk)?;
        Ok(Self { sequences })
    }

    /// Bytes that the longest of them was made with; None where none of them is whole.
    pub(super) fn bytes(&self, disk: &impl Disk) -> Result<Option<u64>, Error> {
        let mut longest = None;
        for sequence in &self.sequences {
            let path = layout::journal_file(*sequence);
            let header = file_header(disk, &path)?;
            let size = disk.size(&path)?;
            longest = longest.max(size.filter(|_| header.map(|header| header.bytes) == size));
        }
        Ok(longest)
    }

    /// What they tell; the damage where they are not whole.
    pub(super) fn story(&self, disk: &impl Disk) -> Result<Result<Story, Damage>, Error> {
        let own = newest_start(disk, &self.sequences);
        match own.and_then(|own| read_journal(disk, &self.sequences[own..])) {
            Ok(story) => Ok(Ok(story)),
            Err(Error::Corrupt(damage)) => Ok(Err(damage)),
            Err(error) => Err(error),
        }
    }

    /// What the newest files tell that are whole: each begins with a checkpoint of all logs.
    /// Else what the oldest tell.
    pub(super) fn best_story(&self, disk: &impl Disk) -> Story {
        let count = self.sequences.len();
        let newest = (0..count).map(|from| from..count);
        let oldest = (1..count).rev().map(|to| 0..to);
        let mut ranges = newest.chain(oldest);
        let story = ranges.find_map(|range| read_journal(disk, &self.sequences[range]).ok());
        let mut story = story.unwrap_or_default();
        for sequence in &self.sequences {
            let header = file_header(disk, &layout::journal_file(*sequence)).ok();
            let next = header.flatten().map_or(0, |header| header.generation + 1);
            story.generation = story.generation.max(next);
        }
        story.clean = false;
        story
    }
}

/// Adds the logs of which folders tell and the story does not. `known_too`: logs that it tells of get
/// the segments that their folders hold, too.
pub(super) fn adopt(
    disk: &impl Disk,
    story: &mut Story,
    incarnations: &BTreeMap<String, u64>,
    known_too: bool,
) -> Result<(), Error> {
    for (stream, incarnation) in incarnations {
        for name in disk.list(&layout::stream_folder(stream))? {
            let Ok(partition) = name.parse::<u32>() else {
                continue;
            };
            let known = story
                .logs
                .values()
                .find(|log| log.state.stream == *stream && log.state.partition == partition);
            if known.is_some() && !known_too {
                continue;
            }
            let id = known.map_or(story.next_id, |log| log.state.id);
            let start = known.map_or(0, |log| log.state.start_offset);
            let epochs = known.map(|log| &log.state.epochs);
            let mut state = examine::found(disk, stream, partition, *incarnation, id, epochs)?;
            let first = state.segments[0].base;
            state.start_offset = start.max(first);
            story.next_id = story.next_id.max(id + 1);
            story.logs.insert(id, Told::new(state));
        }
    }
    Ok(())
}
