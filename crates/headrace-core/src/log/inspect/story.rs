//! The journal of a stopped store, as far as it can be read.

use std::collections::BTreeMap;

use super::examine;
use crate::log::disk::Disk;
use crate::log::error::{Damage, Error};
use crate::log::journal::FileHeader;
use crate::log::layout;
use crate::log::scan;
use crate::log::story::{newest_start, read_journal, Story, Told};

/// The journal's files.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) sequences: Vec<u64>,
    pub(super) bytes: Vec<Vec<u8>>,
}

impl Files {
    pub(super) fn read(disk: &impl Disk) -> Result<Self, Error> {
        let names = disk.list(layout::JOURNAL)?;
        let sequences: Vec<u64> = names
            .iter()
            .filter_map(|name| layout::number(name, "journal"))
            .collect();
        let bytes = sequences
            .iter()
            .map(|sequence| scan::whole_file(disk, &layout::journal_file(*sequence)))
            .collect::<Result<_, _>>()?;
        Ok(Self { sequences, bytes })
    }

    /// What they tell; None and the damage where they are not whole.
    pub(super) fn story(&self) -> Result<Result<Story<'_>, Damage>, Error> {
        let own = newest_start(&self.bytes);
        match read_journal(&self.sequences[own..], &self.bytes[own..]) {
            Ok(story) => Ok(Ok(story)),
            Err(Error::Corrupt(damage)) => Ok(Err(damage)),
            Err(error) => Err(error),
        }
    }

    /// What the newest files tell that are whole: each begins with a checkpoint of all logs.
    /// Else what the oldest tell.
    pub(super) fn best_story(&self) -> Story<'_> {
        let count = self.sequences.len();
        let newest = (0..count).map(|from| from..count);
        let oldest = (1..count).rev().map(|to| 0..to);
        let story = newest.chain(oldest).find_map(|range| {
            read_journal(&self.sequences[range.clone()], &self.bytes[range]).ok()
        });
        let mut story = story.unwrap_or_default();
        let headers = self
            .bytes
            .iter()
            .filter_map(|file| FileHeader::decode(file));
        let generation = headers.map(|header| header.generation + 1).max();
        story.generation = story.generation.max(generation.unwrap_or(0));
        story.clean = false;
        story
    }
}

/// Drops the logs of streams that were on their way out.
pub(super) fn forget_deleted(disk: &impl Disk, story: &mut Story) -> Result<(), Error> {
    let live = disk.list(layout::STREAMS)?;
    for stream in disk.list(layout::TRASH)? {
        if !live.contains(&stream) {
            story.logs.retain(|_, log| log.state.stream != stream);
        }
    }
    Ok(())
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
            let mut state = examine::found(disk, stream, partition, *incarnation, id)?;
            let first = state.segments[0].base;
            state.start_offset = start.max(first);
            story.next_id = story.next_id.max(id + 1);
            let redo = Vec::new();
            story.logs.insert(id, Told { state, redo });
        }
    }
    Ok(())
}
