//! Making a damaged folder one that a start accepts and serves.

use std::collections::{BTreeMap, BTreeSet};

use super::examine::{expected, replay};
use super::holes::Holes;
use super::overlay::Overlay;
use super::rewrite::Work;
use super::snapshots;
use super::story::{adopt, Files};
use super::verify::{refusal, strangers};
use crate::log::disk::{Disk, DiskOp};
use crate::log::error::{Damage, Error};
use crate::log::journal::{Chain, FileHeader, LogState};
use crate::log::layout;
use crate::log::mend::Mender;
use crate::log::options::Options;
use crate::log::partition::Log;
use crate::log::recovery::begin;
use crate::log::story::Told;

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
    let mut mender = Mender::new(disk, options, false, story.logs.len());
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
            refused = refusal(&Overlay::new(disk), options, told, story.clean)?;
        }
        mender.settle([told])?;
        let log = if wanted(&told.state.stream, told.state.partition) {
            let log = mender.salvage(&Told::new(state))?;
            actions.extend(mender.forgotten().map(snapshots::made_up));
            actions.extend(snapshots::keep_sources(disk, &log)?);
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
