//! Disks for readers: one that never waits, and one that reads ahead.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use headrace_core::log::{Disk, DiskError, DiskOp};

use crate::files::Files;

/// Reads from memory alone, and only so much: whatever would wait for the disk, or take long, is
/// refused, and is then another thread's work.
pub(crate) struct Warm<'a> {
    files: &'a Files,
    bytes_left: Cell<usize>,
}

impl<'a> Warm<'a> {
    /// Reads at most `bytes_max`, all in all.
    pub(crate) fn new(files: &'a Files, bytes_max: usize) -> Self {
        Self {
            files,
            bytes_left: Cell::new(bytes_max),
        }
    }
}

fn would_wait<T>() -> Result<T, DiskError> {
    Err("the disk would have to be waited for".to_owned().into())
}

impl Disk for Warm<'_> {
    fn list(&self, _: &str) -> Result<Vec<String>, DiskError> {
        would_wait()
    }

    fn size(&self, _: &str) -> Result<Option<u64>, DiskError> {
        would_wait()
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        let left = self.bytes_left.get().checked_sub(bytes);
        let (Some(left), Some(file)) = (left, self.files.opened(path)) else {
            return would_wait();
        };
        self.bytes_left.set(left);
        // Readers never ask beyond what is committed: fewer bytes are not in memory, or gone.
        match read_cached(&file, position, bytes) {
            Ok(found) if found.len() == bytes => Ok(found),
            _ => would_wait(),
        }
    }

    fn perform(&self, _: &DiskOp) -> Result<(), DiskError> {
        would_wait()
    }
}

/// As many of the bytes as are in the page cache; an error where none is, or where the file system
/// cannot tell.
fn read_cached(file: &File, position: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut found: Vec<u8> = Vec::with_capacity(bytes);
    let room = libc::iovec {
        iov_base: found.as_mut_ptr().cast(),
        iov_len: bytes,
    };
    // SAFETY: the descriptor is open and the buffer live for the length of the call, which fills
    // as many bytes as it returns.
    unsafe {
        let position = position as libc::off_t;
        let count = libc::preadv2(
            file.as_raw_fd(),
            &raw const room,
            1,
            position,
            libc::RWF_NOWAIT,
        );
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        found.set_len(count);
    }
    Ok(found)
}

/// Reads for a reader that goes on: on the way to what it asked for the disk brings that already, and
/// while it takes it in, as much again. The kernel's own read-ahead follows descriptors, which readers
/// at different places share.
pub(crate) struct Ahead<'a> {
    files: &'a Files,
    bytes_max: usize,
}

impl<'a> Ahead<'a> {
    /// For a reader that asks for `bytes_max`.
    pub(crate) fn new(files: &'a Files, bytes_max: usize) -> Self {
        Self { files, bytes_max }
    }
}

impl Disk for Ahead<'_> {
    fn list(&self, folder: &str) -> Result<Vec<String>, DiskError> {
        self.files.list(folder)
    }

    fn size(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.files.size(path)
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        let ahead = self.bytes_max.max(bytes.saturating_mul(2));
        self.files.read_ahead(path, position, ahead);
        self.files.read(path, position, bytes)
    }

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        self.files.perform(op)
    }
}
