//! One process per data folder: an advisory lock on a file that tells who holds it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Held as long as it lives; the kernel lets go when the process dies, so no lock is ever stale.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of `folder`; the error names the process that holds it.
    pub(crate) fn take(folder: &Path) -> Result<Self, String> {
        let path = folder.join("headrace.lock");
        let wrong = |error: io::Error| format!("cannot lock {}: {error}", path.display());
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(wrong)?;
        // SAFETY: the descriptor is open for the length of the call.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(wrong(error));
            }
            let holder = fs::read_to_string(&path).unwrap_or_default();
            return Err(format!(
                "{} is in use by process {}: stop it or choose another data folder",
                folder.display(),
                holder.trim()
            ));
        }
        file.set_len(0).map_err(wrong)?;
        writeln!(file, "{}", std::process::id()).map_err(wrong)?;
        Ok(Self { _file: file })
    }
}
