//! One node per data folder: an advisory lock on the folder itself, which nobody removes as one
//! removes a file, and a file in it that tells who holds the lock.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

const HOLDER: &str = "headrace.lock";

/// Held as long as it lives; the kernel lets go when the process dies, so no lock is ever stale.
#[derive(Debug)]
pub(crate) struct Lock {
    _folder: File,
}

impl Lock {
    /// For who writes: alone. The error names the process that holds it.
    pub(crate) fn take(folder: &Path) -> Result<Self, String> {
        let lock = Self::hold(folder, libc::LOCK_EX)?;
        let path = folder.join(HOLDER);
        let holder = format!("{}\n", std::process::id());
        fs::write(&path, holder)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(lock)
    }

    /// For who reads: with others who do. Changes nothing.
    pub(crate) fn share(folder: &Path) -> Result<Self, String> {
        Self::hold(folder, libc::LOCK_SH)
    }

    fn hold(path: &Path, how: libc::c_int) -> Result<Self, String> {
        let wrong = |error: io::Error| format!("cannot lock {}: {error}", path.display());
        let folder = File::open(path).map_err(wrong)?;
        // SAFETY: the descriptor is open for the length of the call.
        if unsafe { libc::flock(folder.as_raw_fd(), how | libc::LOCK_NB) } == 0 {
            return Ok(Self { _folder: folder });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(wrong(error));
        }
        let holder = fs::read_to_string(path.join(HOLDER)).unwrap_or_default();
        let process = match holder.trim() {
            "" => "another process".to_owned(),
            pid => format!("process {pid}"),
        };
        Err(format!(
            "{} is in use by {process}: stop it or choose another data folder",
            path.display()
        ))
    }
}
