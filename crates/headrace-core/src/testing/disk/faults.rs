//! Effects that fail: one and all after it, or one now and then, after which all is well again.

use super::super::random::Random;
use super::names::below;
use super::State;
use crate::log::{DiskError, DiskOp};

/// Of the syncs a refusing disk fails so many times fewer: each ends what the store may write.
const SYNCS_SPARED: u64 = 4;

/// What a disk that refuses now and then says.
const REFUSALS: [&str; 3] = [
    "Input/output error: check the disk and its mount",
    "No space left on device: free space there",
    "Too many open files: raise the limit of open files (ulimit -n)",
];

/// Which effects a disk refuses now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Any; of a write some bytes are there, of a sync that fails some pages.
    Any,
    /// Those that make or open something: no inode or no descriptor was left. Nothing is lost.
    Opening,
    /// Syncs, which begin and fail.
    Syncing,
    /// Removals of what nothing needs any more; of folders some files go.
    Removing,
}

/// The effect that fails, and all after it.
#[derive(Clone, Debug)]
pub(super) struct Fuse {
    /// Effects before it.
    pub(super) left: usize,
    pub(super) why: String,
    /// Decides what the failing effect leaves half done.
    pub(super) random: Random,
}

/// One effect in so many fails, and those after it do not.
#[derive(Clone, Debug)]
pub(super) struct Refusals {
    pub(super) what: Refused,
    pub(super) one_in: u64,
    pub(super) random: Random,
}

impl Refusals {
    fn hit(&mut self, op: &DiskOp) -> bool {
        use DiskOp::{Close, Create, CreateFolder, SyncFolder, WriteOut, Zero};
        let opens = matches!(
            op,
            Create { .. } | CreateFolder { .. } | SyncFolder { .. } | Zero { .. }
        );
        let may_be = match self.what {
            Refused::Any => !matches!(op, Close { .. } | WriteOut { .. }),
            Refused::Opening => opens,
            Refused::Syncing => op.is_sync(),
            Refused::Removing => op.may_fail(),
        };
        let is_rare = op.is_sync() && self.what != Refused::Syncing;
        let times = if is_rare { SYNCS_SPARED } else { 1 };
        may_be && self.random.below(self.one_in * times) == 0
    }
}

impl State {
    /// Counts down to the effect that fails, and leaves it half done.
    pub(super) fn burn(&mut self, op: &DiskOp) -> Result<(), DiskError> {
        let Some(mut fuse) = self.fuse.take() else {
            return Ok(());
        };
        if fuse.left > 0 {
            fuse.left -= 1;
            self.fuse = Some(fuse);
            return Ok(());
        }
        let is_first = !self.failed && !op.may_fail();
        if is_first {
            self.failed = true;
            self.fail(op, &mut fuse.random);
        }
        let lossy = is_first && op.is_sync();
        let why = DiskError::from(fuse.why.clone());
        self.fuse = Some(fuse);
        Err(DiskError { lossy, ..why })
    }

    /// Refuses the effect, where it is to be, and leaves it half done.
    pub(super) fn refuse(&mut self, op: &DiskOp) -> Result<(), DiskError> {
        let Some(mut refusals) = self.refusals.take() else {
            return Ok(());
        };
        let outcome = if refusals.hit(op) {
            Err(self.refusal(op, &mut refusals))
        } else {
            Ok(())
        };
        self.refusals = Some(refusals);
        outcome
    }

    fn refusal(&mut self, op: &DiskOp, refusals: &mut Refusals) -> DiskError {
        let random = &mut refusals.random;
        self.refused += 1;
        self.has_leftovers |= matches!(op, DiskOp::Remove { .. });
        // A sync that could not begin has lost nothing.
        let begins = match refusals.what {
            Refused::Any => !op.is_sync() || random.chance(50),
            Refused::Opening => false,
            Refused::Syncing | Refused::Removing => true,
        };
        if begins {
            self.fail(op, random);
        }
        let why = REFUSALS[random.below(REFUSALS.len())];
        DiskError {
            lossy: begins && op.is_sync(),
            ..DiskError::from(format!("an effect was refused: {why}"))
        }
    }

    /// Leaves an effect half done.
    fn fail(&mut self, op: &DiskOp, random: &mut Random) {
        self.has_lost |= op.is_sync();
        match op {
            DiskOp::Write {
                path,
                position,
                data,
            } => {
                let written = random.below(data.len() + 1);
                if let Ok(file) = self.open(path) {
                    file.write(*position as usize, &data[..written]);
                }
            }
            DiskOp::Zero { path, bytes } => {
                let written = random.below(*bytes as usize + 1);
                if let Ok(at) = self.create(path) {
                    self.files[at].current.clear();
                    self.files[at].write(0, &vec![0; written]);
                }
            }
            DiskOp::Sync { path } => {
                if let Ok(file) = self.open(path) {
                    file.fail_to_sync(random);
                }
            }
            DiskOp::RemoveFolder { path } => {
                let inside = self.current.keys().filter(|name| below(name, path));
                let inside: Vec<String> = inside.cloned().collect();
                let removed = random.below(inside.len().max(1));
                self.unlink(inside.into_iter().rev().take(removed));
            }
            _ => {}
        }
    }
}
