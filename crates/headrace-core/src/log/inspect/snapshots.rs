//! What is kept beside a log: which of it does not verify, and what can stand in.

use super::repair::Action;
use crate::log::disk::{Disk, DiskOp, Path};
use crate::log::error::{Damage, Error};
use crate::log::layout;
use crate::log::partition::{self, Log};
use crate::log::producers::Producers;
use crate::log::scan;
use crate::log::sources::Sources;
use crate::log::state::STATES;

/// A kind of snapshots, and whether a file of that kind and offset reads whole.
type Kind = (&'static str, fn(&[u8], i64) -> bool);

pub(super) const SNAPSHOTS: [Kind; 3] = [
    (layout::PRODUCERS, |file, _| {
        Producers::decode(file).is_some()
    }),
    (layout::SOURCES, |file, offset| {
        Sources::of_file(file, offset).is_some()
    }),
    (layout::STATE, |file, offset| {
        STATES.body(file, offset).is_some()
    }),
];

/// The files of a log that do not verify. Those that are only to be removed are not read: nothing
/// syncs them, and they may be torn.
pub(super) fn damaged(disk: &impl Disk, folder: &str) -> Result<Vec<Path>, Error> {
    let names = disk.list(folder)?;
    let mut damaged = Vec::new();
    for (kind, reads) in SNAPSHOTS {
        let mut offsets = layout::offsets(&names, kind);
        if kind == layout::PRODUCERS {
            offsets.drain(..offsets.len().saturating_sub(partition::SNAPSHOTS));
        }
        for offset in offsets {
            let path = layout::file(folder, offset, kind);
            if !reads(&scan::side_file(disk, &path)?, offset) {
                damaged.push(path);
            }
        }
    }
    Ok(damaged)
}

/// Removes them: what they told, the records tell, as far as they are there. With the newest state go
/// those before it, which may be too old for the records (a crash keeps one from going at once).
pub(super) fn drop_damaged(disk: &impl Disk, folder: &str) -> Result<Vec<Action>, Error> {
    let mut actions = Vec::new();
    let mut dropped = damaged(disk, folder)?;
    let states = layout::offsets(&disk.list(folder)?, layout::STATE).into_iter();
    let mut states: Vec<Path> = states
        .map(|offset| layout::file(folder, offset, layout::STATE))
        .collect();
    if states.pop().is_some_and(|newest| dropped.contains(&newest)) {
        states.retain(|older| !dropped.contains(older));
        dropped.extend(states);
    }
    for path in dropped {
        actions.push(Action {
            path: path.to_string(),
            what: "goes; the next start reads the records instead".into(),
            lost: None,
            backup: true,
        });
        disk.perform(&DiskOp::Remove { path })?;
    }
    Ok(actions)
}

/// Where the snapshot of sources is lost that told of records that are gone: keeps what the older
/// one tells, and the records that are there, so that a start takes it.
pub(super) fn keep_sources(disk: &impl Disk, log: &Log) -> Result<Option<Action>, Error> {
    let plan = log.plan_sources();
    let Some(damage) = plan.damage(disk)? else {
        return Ok(None);
    };
    let saving = log.save_sources(&plan.salvage(disk)?, 0, 0);
    disk.perform_all(&saving.ops)?;
    Ok(Some(made_up(damage)))
}

/// Where nothing can bring back what a snapshot told, the next start takes what is left.
pub(super) fn made_up(damage: Damage) -> Action {
    Action {
        path: damage.path,
        what: format!("is made up for from what is left: {}", damage.what),
        lost: None,
        backup: false,
    }
}
