//! Many files made durable by one system call.
//!
//! Each `fdatasync` ends with a flush of the disk's cache, and a thousand of them, one after the
//! other, take seconds beside other writers. `syncfs` writes all that its file system holds, and
//! flushes once.
//!
//! Invariants. What was written through a file's descriptor before the call is durable on return,
//! as if it had been synced by itself; a write-back that failed is an error, whichever call began
//! it: the kernel tells it once per descriptor, so each is asked, and the file system's as well.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path as FsPath;

/// Syncs from which one of the file system pays: it also writes what other programs left there.
pub(crate) const SYNCS_MIN: usize = 16;

/// `syncfs` tells of failed write-backs from then on.
const KERNEL: (u32, u32) = (5, 8);

/// The file system of a folder, opened before anything is written to it.
#[derive(Debug)]
pub(crate) struct FileSystem {
    folder: File,
    device: u64,
}

impl FileSystem {
    /// None where `syncfs` is not known to promise what `fdatasync` does.
    pub(crate) fn of(root: &FsPath) -> Option<Self> {
        let known = tells_of_failures() && matches!(kind(root), Some(EXT4 | XFS));
        let folder = File::open(root).ok().filter(|_| known)?;
        let device = folder.metadata().ok()?.dev();
        Some(Self { folder, device })
    }

    pub(crate) fn holds(&self, file: &File) -> io::Result<bool> {
        Ok(file.metadata()?.dev() == self.device)
    }

    /// Writes all of it. The disk may still have the last of it in its cache: a sync of any one
    /// file that follows flushes that.
    pub(crate) fn write(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open for the length of the call.
        match unsafe { libc::syncfs(self.folder.as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Whether what was written through this descriptor reached the disk; nothing is written.
pub(crate) fn check_written(file: &File) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE;
    // SAFETY: the descriptor is open for the length of the call.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Magic numbers of file systems (statfs(2)).
const EXT4: i64 = 0xEF53;
const XFS: i64 = 0x5846_5342;

fn kind(root: &FsPath) -> Option<i64> {
    let path = CString::new(root.as_os_str().as_bytes()).ok()?;
    let mut found = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path is NUL-terminated; the kernel fills the struct where it returns 0.
    unsafe {
        (libc::statfs(path.as_ptr(), found.as_mut_ptr()) == 0).then(|| found.assume_init().f_type)
    }
}

fn tells_of_failures() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease");
    release.is_ok_and(|release| version(&release).is_some_and(|found| found >= KERNEL))
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_told_apart() {
        assert_eq!(version("6.18.44-fc-v769\n"), Some((6, 18)));
        assert_eq!(version("5.8.0"), Some((5, 8)));
        assert!(version("5.4.0-150-generic").unwrap() < KERNEL);
        assert_eq!(version("unknown"), None);
    }
}
