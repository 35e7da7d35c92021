//! What is wrong in a data folder. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::examine::{examine, expected, replay, Seen};
use super::holes::Holes;
use super::overlay::Overlay;
use super::snapshots;
use super::story::{adopt, Files};
use crate::log::disk::Disk;
use crate::log::error::{Damage, Error};
use crate::log::journal::SegmentState;
use crate::log::layout;
use crate::log::mend::Mender;
use crate::log::options::Options;
use crate::log::scan;
use crate::log::story::Told;

/// What is wrong with one.
const SNAPSHOT: &str = "the snapshot does not verify";

/// What a finding costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Records cannot be read.
    Records,
    /// The journal cannot be read, so that nobody knows where logs end.
    Journal,
    /// A file, or a stamp, that can be rebuilt from the records.
    Side,
}

/// One damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it costs.
    pub class: Class,
    /// Where and what.
    pub damage: Damage,
    /// Offsets that cannot be read: the first, and the one after them.
    pub lost: Option<(i64, i64)>,
}

/// Walks everything that `wanted` (stream, partition) asks for. `incarnations` are those of the
/// streams that have a definition; `progress` is told how many bytes each segment had.
pub fn verify(
    disk: &impl Disk,
    options: Options,
    incarnations: &BTreeMap<String, u64>,
    wanted: impl Fn(&str, u32) -> bool,
    mut progress: impl FnMut(u64),
) -> Result<Vec<Finding>, Error> {
    let disk = &Holes(disk);
    let files = Files::read(disk)?;
    let mut findings = Vec::new();
    let whole = files.story(disk)?;
    let certain = whole.is_ok();
    let mut story = match whole {
        Ok(story) => story,
        Err(damage) => {
            findings.push(Finding {
                class: Class::Journal,
                damage,
                lost: None,
            });
            files.best_story(disk)
        }
    };
    story.forget_deleted(disk)?;
    let known: BTreeSet<u32> = story.logs.keys().copied().collect();
    if certain {
        strangers(disk, &story.logs, incarnations, &mut findings)?;
    }
    // What the whole files of a damaged journal hold counts before what the folders do.
    adopt(disk, &mut story, incarnations, !certain)?;
    for (id, told) in &story.logs {
        let certain = certain && known.contains(id);
        if !wanted(&told.state.stream, told.state.partition) {
            continue;
        }
        // What a crash leaves, a start mends. What it cannot mend, and all that an orderly stop
        // left otherwise, is damage.
        let tried = Overlay::new(disk);
        let refused = if certain {
            refusal(&tried, options, told, story.clean)?
        } else {
            None
        };
        let is_mended = certain && !story.clean && refused.is_none();
        let before = findings.len();
        if is_mended {
            vouched(disk, &tried, told, &mut findings)?;
        }
        let overlay = if is_mended { tried } else { Overlay::new(disk) };
        look(
            &overlay,
            told,
            (certain, story.clean, is_mended),
            &mut findings,
            &mut progress,
        )?;
        let is_side = |finding: &Finding| finding.class == Class::Side;
        if findings[before..].iter().all(is_side) {
            let mut known = findings.iter().map(|finding| &finding.damage.path);
            let refused = refused.filter(|damage| !known.any(|path| *path == damage.path));
            findings.extend(refused.map(|damage| Finding {
                class: Class::Records,
                damage,
                lost: None,
            }));
        }
    }
    Ok(findings)
}

/// Why a start would refuse the log, whatever a walk over it may have missed. Where it would not,
/// `overlay` holds what it leaves.
pub(super) fn refusal(
    overlay: &Overlay<impl Disk>,
    options: Options,
    told: &Told,
    clean: bool,
) -> Result<Option<Damage>, Error> {
    let mended = Mender::new(overlay, options, clean, 1).mend(told);
    match mended.and_then(|log| log.plan_sources().damage(overlay)) {
        Ok(damage) => Ok(damage),
        Err(Error::Corrupt(damage)) => Ok(Some(damage)),
        Err(error) => Err(error),
    }
}

fn look(
    disk: &impl Disk,
    told: &Told,
    (certain, clean, is_mended): (bool, bool, bool),
    findings: &mut Vec<Finding>,
    progress: &mut impl FnMut(u64),
) -> Result<(), Error> {
    let folder = layout::log_folder(&told.state.stream, told.state.partition);
    let segments = expected(disk, told, certain)?;
    replay(disk, told, &segments)?;
    for segment in segments {
        let seen = examine(disk, &folder, segment, &told.state.epochs, clean)?;
        findings.extend(found(&seen));
        progress(seen.size.unwrap_or(0));
    }
    for path in snapshots::damaged(disk, &folder)? {
        findings.push(side(&path, 0, None, SNAPSHOT));
    }
    // What a start has mended it has made anew.
    if !is_mended && has_epochs_file(told, certain, clean) {
        findings.extend(of_epochs(disk, &folder, told)?);
    }
    Ok(())
}

/// There must be a file of the epochs that the journal tells of, and nothing else in it. What a crash
/// leaves of the file of a log that is new is nobody's to judge, nor is a log that no journal knows.
pub(super) fn has_epochs_file(told: &Told, certain: bool, clean: bool) -> bool {
    told.state.next_offset > 0 || certain && (clean || told.epochs_settled)
}

fn of_epochs(disk: &impl Disk, folder: &str, told: &Told) -> Result<Option<Finding>, Error> {
    let epochs = layout::epochs(folder);
    let is_sound = scan::side_file(disk, &epochs)? == told.state.epochs.file();
    let what = "it does not say which epochs the journal tells of";
    Ok((!is_sound).then(|| side(&epochs, 0, None, what)))
}

/// The journal tells of an index only once that is synced, and the snapshot of producers that the same
/// roll left with it: one that is another was damaged since, by no crash, though a start makes it anew.
/// So is an epochs' file that was synced before, unless the start, `tried`, knows of a later epoch: one
/// that was cut short may have written that.
///
/// Nobody knows of what else changed since the journal began whether the disk ever had it. Of that a
/// start takes nothing: it makes epochs, indexes and snapshots of producers anew from the journal and
/// the records.
fn vouched(
    disk: &impl Disk,
    tried: &impl Disk,
    told: &Told,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    let state = &told.state;
    let folder = layout::log_folder(&state.stream, state.partition);
    let ends = state.segments.iter().skip(1).map(|next| next.base);
    let closed = state.segments.iter().zip(ends);
    for (segment, _) in closed.filter(|(_, end)| *end > state.start_offset) {
        let files = segment.files(&folder);
        if segment.index_crc.is_some() && files.index(disk)?.is_none() {
            let what = "it, or the .timeindex beside it, is not the one that was written";
            findings.push(side(&files.path(layout::INDEX), 0, None, what));
        }
    }
    let snapshot = |base: &i64| layout::file(&folder, *base, layout::PRODUCERS);
    for path in snapshots::damaged(disk, &folder)? {
        if told.settled.iter().any(|base| snapshot(base) == path) {
            findings.push(side(&path, 0, None, SNAPSHOT));
        }
    }
    if told.epochs_settled && of_epochs(tried, &folder, told)?.is_none() {
        findings.extend(of_epochs(disk, &folder, told)?);
    }
    Ok(())
}

pub(super) fn found(seen: &Seen) -> Vec<Finding> {
    let path = &seen.path;
    let mut findings = Vec::new();
    for lost in &seen.survey.lost {
        let missing = seen.size.is_none() && lost.position == 0;
        let what = if missing {
            "the segment is missing".to_owned()
        } else {
            lost.what.clone()
        };
        findings.push(Finding {
            class: Class::Records,
            damage: Damage {
                path: path.to_string(),
                position: lost.position,
                offset: Some(lost.first),
                what,
            },
            lost: Some((lost.first, lost.next)),
        });
    }
    for (position, offset) in &seen.survey.stamps {
        let what = "the batch's offset or epoch is wrong, its records are not";
        findings.push(side(path, *position, Some(*offset), what));
    }
    let goes_on = seen
        .size
        .is_some_and(|size| size > seen.expected.state.bytes);
    if goes_on && !seen.expected.active {
        let what = "the segment goes on after its end";
        findings.push(side(path, seen.expected.state.bytes, None, what));
    }
    if let Some((index, position)) = &seen.index {
        let what = "the index does not name what stands in its segment";
        findings.push(side(index, *position, None, what));
    }
    findings
}

fn side(path: &str, position: u64, offset: Option<i64>, what: &str) -> Finding {
    Finding {
        class: Class::Side,
        damage: Damage {
            path: path.to_owned(),
            position,
            offset,
            what: what.to_owned(),
        },
        lost: None,
    }
}

/// Folders with records that belong to a defined stream and that the journal does not know.
pub(super) fn strangers(
    disk: &impl Disk,
    logs: &BTreeMap<u32, Told>,
    incarnations: &BTreeMap<String, u64>,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    for stream in incarnations.keys() {
        for name in disk.list(&layout::stream_folder(stream))? {
            let Ok(partition) = name.parse::<u32>() else {
                continue;
            };
            let known = logs
                .values()
                .any(|log| log.state.stream == *stream && log.state.partition == partition);
            if known {
                continue;
            }
            let segments = super::examine::listed(disk, &layout::log_folder(stream, partition))?;
            let has_past = |segment: &SegmentState| segment.bytes > 0 || segment.base > 0;
            if segments.iter().any(has_past) {
                findings.push(Finding {
                    class: Class::Journal,
                    damage: Damage {
                        path: layout::log_folder(stream, partition).to_string(),
                        position: 0,
                        offset: None,
                        what: "the journal does not know these segments; --rebuild-journal makes them known"
                            .into(),
                    },
                    lost: None,
                });
            }
        }
    }
    Ok(())
}
