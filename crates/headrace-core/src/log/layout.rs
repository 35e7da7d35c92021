//! Names on disk: the only place that spells them.

use super::disk::Path;

/// Holds a folder per stream.
pub(super) const STREAMS: &str = "streams";
/// Holds the journal's files.
pub(super) const JOURNAL: &str = "journal";
/// Holds stream folders on their way out.
pub(super) const TRASH: &str = "trash";
/// A preallocated journal file that is not in use.
pub(super) const SPARE: &str = "journal/spare";

/// Kinds of files that carry an offset in their name.
pub(super) const SEGMENT: &str = "log";
pub(super) const INDEX: &str = "index";
pub(super) const TIME_INDEX: &str = "timeindex";
pub(super) const PRODUCERS: &str = "producers";
pub(super) const SOURCES: &str = "sources";
pub(super) const STATE: &str = "state";
const UNFINISHED: &str = ".new";

pub(super) fn stream_folder(stream: &str) -> Path {
    format!("{STREAMS}/{stream}").into()
}

/// Where a stream goes that round `round` deletes, of which logs below `ids` are gone: no other has
/// that place, and a later stream of its name has later logs. Of rounds that are refused, `next_id`
/// tells one from another.
pub(super) fn trash_folder(stream: &str, ids: u32, round: u64, next_id: u32) -> Path {
    format!("{TRASH}/{stream}.{ids}.{round}-{next_id}").into()
}

/// The stream that stands there, and the first log that may be a later one's. None where it is a
/// name that nothing of ours has.
pub(super) fn trashed(name: &str) -> Option<(&str, u32)> {
    let (rest, when) = name.rsplit_once('.')?;
    let is_number = |part: &str| part.parse::<u64>().is_ok();
    if !when.split('-').all(is_number) {
        return None;
    }
    let (stream, ids) = rest.rsplit_once('.')?;
    Some((stream, ids.parse().ok()?))
}

pub(super) fn log_folder(stream: &str, partition: u32) -> Path {
    format!("{STREAMS}/{stream}/{partition}").into()
}

pub(super) fn file(folder: &str, offset: i64, kind: &str) -> Path {
    format!("{folder}/{offset:020}.{kind}").into()
}

/// A file of the segment that begins at `base`, in the form that a compaction gave it; 0 is the
/// form in which it was appended, and has the names that Kafka gives. A form never shares a name
/// with another, so that who has planned to read one never reads the other.
pub(super) fn segment_file(folder: &str, base: i64, generation: u32, kind: &str) -> Path {
    if generation == 0 {
        return file(folder, base, kind);
    }
    format!("{folder}/{base:020}.{generation}.{kind}").into()
}

/// `(base, generation, kind)` of a segment's file.
pub(super) fn segment_of(name: &str) -> Option<(i64, u32, &'static str)> {
    let (rest, kind) = name.rsplit_once('.')?;
    let kind = [SEGMENT, INDEX, TIME_INDEX]
        .into_iter()
        .find(|known| *known == kind)?;
    let (base, generation) = match rest.split_once('.') {
        Some((base, generation)) => (base, generation.parse().ok().filter(|found| *found > 0)?),
        None => (rest, 0),
    };
    let base = i64::try_from(number(&format!("{base}.{kind}"), kind)?).ok()?;
    Some((base, generation, kind))
}

pub(super) fn epochs(folder: &str) -> Path {
    format!("{folder}/leader-epoch-checkpoint").into()
}

pub(super) fn journal_file(sequence: u64) -> Path {
    format!("{JOURNAL}/{sequence:020}.journal").into()
}

/// The number in a name like `00000000000000000042.log`, where it is of that kind.
pub(super) fn number(name: &str, kind: &str) -> Option<u64> {
    let (number, found) = name.split_once('.')?;
    if found != kind || number.len() != 20 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse().ok()
}

/// The offset in the name of a file of a log, of whatever kind.
pub(super) fn offset_of(name: &str) -> Option<i64> {
    let beside = [PRODUCERS, SOURCES, STATE];
    let named = |kind| i64::try_from(number(name, kind)?).ok();
    let segment = segment_of(name).map(|(base, ..)| base);
    segment.or_else(|| beside.into_iter().find_map(named))
}

/// Where a file is written before it gets its name.
pub(super) fn unfinished(path: &str) -> Path {
    format!("{path}{UNFINISHED}").into()
}

/// A file of a log that a crash, or a write that failed, kept from getting its name.
pub(super) fn is_unfinished(name: &str) -> bool {
    let named = name.strip_suffix(UNFINISHED);
    named.is_some_and(|name| offset_of(name).is_some())
}

/// Offsets of the files of one kind, ascending.
pub(super) fn offsets(names: &[String], kind: &str) -> Vec<i64> {
    let mut offsets: Vec<i64> = names
        .iter()
        .filter_map(|name| i64::try_from(number(name, kind)?).ok())
        .collect();
    offsets.sort_unstable();
    offsets
}
