//! The port to the disk: effects that a shell performs exactly, and what recovery reads.
//!
//! Paths are relative to the data folder and use `/`. The running machine only emits
//! [`DiskOp`]s; recovery and readers also read. `headrace-io` implements [`Disk`] over real
//! files, the tests over memory with faults.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A path below the data folder.
pub type Path = Arc<str>;

/// Part of a shared buffer: one journal buffer serves the journal write and, in slices, the
/// segment writes of the same round.
#[derive(Clone)]
pub struct Slice {
    buffer: Arc<Vec<u8>>,
    start: usize,
    end: usize,
}

impl Slice {
    /// `buffer[start..end]`.
    ///
    /// # Panics
    /// Where the range is not inside the buffer.
    pub fn new(buffer: Arc<Vec<u8>>, start: usize, end: usize) -> Self {
        assert!(start <= end && end <= buffer.len(), "a slice of its buffer");
        Self { buffer, start, end }
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Self {
        let end = bytes.len();
        Self::new(Arc::new(bytes), 0, end)
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// One effect on the disk. A list of them is performed in order, each one whole before the next
/// begins; the first that fails ends the list.
#[derive(Clone, Debug)]
pub enum DiskOp {
    /// Makes a folder; no fault where it is there.
    CreateFolder {
        /// The folder; its parent exists.
        path: Path,
    },
    /// Makes an empty file; no fault where it is there.
    Create {
        /// The file.
        path: Path,
    },
    /// Writes all of `data` (page cache only).
    Write {
        /// An existing file.
        path: Path,
        /// First byte to write.
        position: u64,
        /// What to write there.
        data: Slice,
    },
    /// Makes the file `bytes` long and writes zeros to all of it, so that overwriting it later
    /// changes no metadata and `fdatasync` waits for data alone.
    Zero {
        /// The file; made where it is not there.
        path: Path,
        /// Its length from now on.
        bytes: u64,
    },
    /// Cuts or extends the file.
    SetLength {
        /// An existing file.
        path: Path,
        /// Its length from now on.
        bytes: u64,
    },
    /// Begins to write the file's pages to the disk and does not wait: a hint that shortens the
    /// syncs which follow, and promises nothing.
    WriteOut {
        /// The file.
        path: Path,
    },
    /// Makes the file's bytes and length durable. A failure is final: the pages may be gone
    /// from memory, so another call could succeed without them, that of another thread among
    /// them. The machine hears of each before it counts ([`Machine::sync_ended`]), and those of one
    /// file or folder take turns, so that it hears of them in order.
    ///
    /// [`Machine::sync_ended`]: super::Machine::sync_ended
    Sync {
        /// An existing file.
        path: Path,
    },
    /// Makes these files durable, and forgets what memory holds of them, so that reads tell what the
    /// disk has got: after a failed sync the two may differ. However many they are, the disk is asked
    /// to flush once where it can be, and no descriptor stays open.
    Settle {
        /// Files; those that are not there are passed over.
        paths: Vec<Path>,
    },
    /// Makes the folder's entries durable.
    SyncFolder {
        /// An existing folder.
        path: Path,
    },
    /// Renames a file or folder, replacing a file of the new name.
    Rename {
        /// The old name.
        from: Path,
        /// The new name.
        to: Path,
    },
    /// Removes a file; no fault where it is not there.
    Remove {
        /// The file.
        path: Path,
    },
    /// Removes a file that nothing needs any more. Where that fails nothing is lost, and what
    /// follows is performed: the shell tells of it and tries again.
    LetGo {
        /// The file.
        path: Path,
    },
    /// Removes a folder and all in it, which nothing needs any more: as [`DiskOp::LetGo`].
    RemoveFolder {
        /// The folder.
        path: Path,
    },
    /// Removes a folder where it is empty. Where it is not, or cannot be removed, it stays: the next
    /// who makes it finds it.
    RemoveEmpty {
        /// The folder.
        path: Path,
    },
    /// No more is written to the file: its descriptor may go.
    Close {
        /// The file.
        path: Path,
    },
}

impl DiskOp {
    /// What goes wrong with it loses nothing.
    pub fn may_fail(&self) -> bool {
        matches!(
            self,
            Self::LetGo { .. } | Self::RemoveFolder { .. } | Self::RemoveEmpty { .. }
        )
    }

    /// It is the sync of one file or folder.
    pub fn is_sync(&self) -> bool {
        matches!(self, Self::Sync { .. } | Self::SyncFolder { .. })
    }
}

/// Why the disk refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    /// One line that names the file, the cause and the remedy.
    pub text: String,
    /// The medium does not give these bytes back (EIO): others may be sound, and writing there
    /// may mend it.
    pub unreadable: bool,
    /// A sync was begun and failed: what it had to write may be lost, whoever's that was, and no
    /// later sync tells (fsync(2)).
    pub lossy: bool,
}

impl From<String> for DiskError {
    /// A refusal of any other kind.
    fn from(text: String) -> Self {
        Self {
            text,
            unreadable: false,
            lossy: false,
        }
    }
}

/// Files as the machine knows them.
pub trait Disk {
    /// Names in a folder, sorted; none where there is no such folder.
    fn list(&self, folder: &str) -> Result<Vec<String>, DiskError>;
    /// Length of a file, or None where there is none.
    fn size(&self, path: &str) -> Result<Option<u64>, DiskError>;
    /// Reads `bytes` from `position`; fewer where the file ends.
    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError>;
    /// Performs one effect.
    fn perform(&self, op: &DiskOp) -> Result<(), DiskError>;
    /// Performs effects in order; the first that fails ends that. Syncs that follow on each other
    /// may be one.
    fn perform_all(&self, ops: &[DiskOp]) -> Result<(), DiskError> {
        ops.iter().try_for_each(|op| self.perform(op))
    }
}
