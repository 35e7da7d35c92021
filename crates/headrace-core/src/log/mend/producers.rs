//! What tells of idempotent producers: a snapshot, or segments that a trim has not removed yet.

use super::Mender;
use crate::log::disk::Disk;
use crate::log::error::{Damage, Error};
use crate::log::layout;
use crate::log::partition::Log;
use crate::log::producers::Producers;
use crate::log::read::newest;
use crate::log::story::Told;

impl<D: Disk> Mender<'_, D> {
    /// Where the segments begin that are read: those wholly below the start offset may be gone.
    /// While they are there and no snapshot tells of their producers, they tell of them.
    pub(super) fn first_needed(&self, log: &Log, told: &Told, covered: i64) -> Result<i64, Error> {
        let bases = told.bases();
        let kept = bases.partition_point(|base| *base <= log.start_offset) - 1;
        let (gone, first) = (&bases[..kept], bases[kept]);
        let mut needed = first;
        for base in gone.iter().rev() {
            if covered >= needed {
                break;
            }
            let path = told.path(&log.folder, *base);
            if self.disk.size(&path)?.unwrap_or(0) < told.bytes_beside_journal(*base) {
                break;
            }
            needed = *base;
        }
        Ok(needed)
    }

    /// A trim takes segments only when a snapshot is durable that tells of their producers. Where
    /// none does any more, and they are gone, what a producer sends again would be stored twice.
    pub(super) fn meet_lost_producers(
        &mut self,
        log: &Log,
        told: &Told,
        covered: i64,
        first: i64,
    ) -> Result<(), Error> {
        let names = self.disk.list(&log.folder)?;
        let mut offsets = layout::offsets(&names, layout::PRODUCERS).into_iter();
        let newest = offsets.rfind(|offset| *offset >= first && trusted(told, *offset));
        let what = match newest {
            Some(_) => "the snapshot does not verify",
            None => "the snapshot is missing",
        };
        let what = format!(
            "{what}, and of the records at offsets {covered} to {} that told of idempotent \
             producers some are gone, so that what those send again would be stored twice",
            first - 1
        );
        let path = layout::file(&log.folder, newest.unwrap_or(first), layout::PRODUCERS);
        let damage = Damage {
            path: path.to_string(),
            position: 0,
            offset: None,
            what,
        };
        if !self.salvages {
            return Err(Error::Corrupt(damage));
        }
        self.forgotten = Some(damage);
        Ok(())
    }

    /// The newest snapshot of producers that is true of what the journal tells.
    pub(super) fn snapshot(
        &self,
        log: &Log,
        told: &Told,
    ) -> Result<Option<(i64, Producers)>, Error> {
        newest(
            self.disk,
            &log.folder,
            layout::PRODUCERS,
            |offset| trusted(told, offset),
            Producers::decode,
        )
    }
}

/// Snapshots of segments' beginnings are true of what the journal tells, and those that are older
/// than the oldest checkpoint.
fn trusted(told: &Told, offset: i64) -> bool {
    offset <= told.state.next_offset || told.bases().contains(&offset)
}
