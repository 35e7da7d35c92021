//! System calls that the standard library has not, or has in another shape.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Zeros are written in pieces of this size.
const ZERO_BYTES: usize = 1 << 20;

/// Reads until `bytes` or the end of the file, which may have been cut meanwhile.
pub(crate) fn read_at(file: &File, position: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        match file.read_at(&mut buffer[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

/// Reserves the blocks in one piece where the file system can, then writes them: blocks that are
/// merely reserved would be converted, in metadata, by every first write.
pub(crate) fn zero(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(0)?;
    // SAFETY: the descriptor is open for the length of the call.
    let reserved = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) };
    if reserved != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return Err(error);
        }
    }
    let zeros = vec![0; ZERO_BYTES];
    let mut position = 0;
    while position < bytes {
        let piece = (bytes - position).min(ZERO_BYTES as u64);
        file.write_all_at(&zeros[..piece as usize], position)?;
        position += piece;
    }
    Ok(())
}

/// Hands the file's dirty pages to the disk's queue. What goes wrong, the sync that follows tells.
pub(crate) fn write_out(file: &File) {
    // SAFETY: the descriptor is open for the length of the call.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Drops the file's clean pages from memory.
pub(crate) fn drop_cache(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Device and inode.
pub(crate) fn identity(folder: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(folder)?;
    Ok((found.dev(), found.ino()))
}

/// Files that this process may open beside those that it has open; None where nobody tells.
pub(crate) fn descriptors_left() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills the struct.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return None;
    }
    match fs::read_dir("/proc/self/fd") {
        // That of the folder itself is among them.
        Ok(open) => Some((limit.rlim_cur + 1).saturating_sub(open.count() as u64)),
        Err(error) => is_out_of_descriptors(&error).then_some(0),
    }
}

pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
