//! What a stopped store holds, for people to read.

use std::collections::BTreeMap;

use super::examine::expected;
use super::holes::Holes;
use super::snapshots::SNAPSHOTS;
use super::story::{adopt, Files};
use crate::log::disk::Disk;
use crate::log::error::Error;
use crate::log::journal::{entries, walk, Entry};
use crate::log::layout;
use crate::log::producers::Producers;
use crate::log::scan;
use crate::log::sources::Sources;
use crate::log::state::STATES;

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// The file.
    pub path: String,
    /// Where its round begins.
    pub position: u64,
    /// Number of the round.
    pub round: u64,
    /// What it is, in one line.
    pub text: String,
}

/// A log as the journal tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFacts {
    /// Its stream.
    pub stream: String,
    /// Its partition.
    pub partition: u32,
    /// Which stream of that name.
    pub incarnation: u64,
    /// Offset of the first record that is kept.
    pub start_offset: i64,
    /// Base offset, bytes and file of each segment.
    pub segments: Vec<(i64, u64, String)>,
}

/// A side file with the state of producers or of MQTT sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The file.
    pub path: String,
    /// One line for each producer or source; None where the file does not verify.
    pub lines: Option<Vec<String>>,
}

/// Bytes of a file of the journal, where one is whole: a new one takes that over.
pub fn journal_bytes(disk: &impl Disk) -> Result<Option<u64>, Error> {
    Files::read(disk)?.bytes(disk)
}

/// Every entry of the journal, up to the first damage, which is the last line then.
pub fn journal(disk: &impl Disk) -> Result<Vec<JournalEntry>, Error> {
    let files = Files::read(disk)?;
    let mut lines = Vec::new();
    for sequence in &files.sequences {
        let path = layout::journal_file(*sequence);
        let mut line = |position: u64, round: u64, text: String| {
            lines.push(JournalEntry {
                path: path.to_string(),
                position,
                round,
                text,
            });
        };
        let walked = walk(disk, &path, *sequence, None, |found| {
            for entry in entries(found.payload).unwrap_or_default() {
                line(found.position, found.round, describe(&entry));
            }
            Ok(())
        });
        match walked {
            Err(Error::Corrupt(damage)) => {
                line(damage.position, 0, format!("damaged: {}", damage.what));
            }
            outcome => outcome.map(|_| ())?,
        }
    }
    Ok(lines)
}

fn describe(entry: &Entry) -> String {
    match entry {
        Entry::Checkpoint(checkpoint) => {
            let clean = if checkpoint.clean { "clean " } else { "" };
            format!("{clean}checkpoint of {} logs", checkpoint.logs.len())
        }
        Entry::Write {
            id,
            base,
            position,
            bytes,
            ..
        } => format!(
            "write: log {id}, segment {base}, {} bytes at {position}",
            bytes.len()
        ),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// Every log, by stream and partition.
pub fn logs(
    disk: &impl Disk,
    incarnations: &BTreeMap<String, u64>,
) -> Result<Vec<LogFacts>, Error> {
    let disk = &Holes(disk);
    let files = Files::read(disk)?;
    let whole = files.story(disk)?;
    let certain = whole.is_ok();
    let mut story = match whole {
        Ok(story) => story,
        Err(_) => files.best_story(disk),
    };
    story.forget_deleted(disk)?;
    adopt(disk, &mut story, incarnations, !certain)?;
    let mut facts = Vec::new();
    for told in story.logs.values() {
        let state = &told.state;
        let folder = layout::log_folder(&state.stream, state.partition);
        let segments = expected(disk, told, certain)?.into_iter().map(|segment| {
            let path = segment.state.files(&folder).path(layout::SEGMENT);
            (segment.state.base, segment.state.bytes, path.to_string())
        });
        facts.push(LogFacts {
            stream: state.stream.clone(),
            partition: state.partition,
            incarnation: state.incarnation,
            start_offset: state.start_offset,
            segments: segments.collect(),
        });
    }
    facts.sort_by(|a, b| (&a.stream, a.partition).cmp(&(&b.stream, b.partition)));
    Ok(facts)
}

/// The snapshots of one log.
pub fn snapshots(disk: &impl Disk, stream: &str, partition: u32) -> Result<Vec<Snapshot>, Error> {
    let folder = layout::log_folder(stream, partition);
    let names = disk.list(&folder)?;
    let mut found = Vec::new();
    for (kind, _) in SNAPSHOTS {
        for offset in layout::offsets(&names, kind) {
            let path = layout::file(&folder, offset, kind);
            let file = scan::side_file(disk, &path)?;
            let lines = match kind {
                layout::PRODUCERS => Producers::decode(&file).map(|producers| producers.describe()),
                layout::SOURCES => Sources::of_file(&file, offset)
                    .map(|all| all.states().iter().map(source).collect()),
                _ => STATES.body(&file, offset).map(|state| {
                    let bytes = state.len();
                    vec![format!(
                        "state of all records below {offset}, {bytes} bytes"
                    )]
                }),
            };
            found.push(Snapshot {
                path: path.to_string(),
                lines,
            });
        }
    }
    Ok(found)
}

fn source((name, epoch, sequence): &(String, u64, u64)) -> String {
    format!("source {name:?}, epoch {epoch}, sequence {sequence}")
}
