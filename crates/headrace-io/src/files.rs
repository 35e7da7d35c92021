//! Real files behind [`Disk`]: one system call for each effect, errors as one line.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use headrace_core::hash::Map;
use headrace_core::log::{Disk, DiskError, DiskOp, Path};

use crate::calls::{
    descriptors_left, drop_cache, identity, is_out_of_descriptors, read_at, write_out, zero,
};
use crate::descriptors::Descriptors;
use crate::leftovers::Leftovers;
use crate::room::{remedy, Room};
use crate::together::{check_written, FileSystem, SYNCS_MIN};
use crate::turns::Turns;

/// Hears how a sync has ended, and says whether it counts.
pub(crate) type Hear<'a> = &'a dyn Fn(Result<(), DiskError>) -> Result<(), DiskError>;

/// What a read that fails is called.
const READING: &str = "reading";

/// The files of one data folder. Those that are written stay open until an effect closes them,
/// so that the kernel tells this process, and no other, of a failed write-back.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    open: Mutex<Map<Path, Arc<File>>>,
    /// Where many can be synced at once.
    file_system: Option<FileSystem>,
    /// Files that are only read.
    readers: Descriptors,
    /// Files and folders that are being synced.
    syncing: Turns,
    pub(crate) leftovers: Leftovers,
    /// Device and inode of the folder.
    identity: Option<(u64, u64)>,
    /// Nothing stays open for writing once it is synced.
    stopped: bool,
}

impl Files {
    /// The files below `root`, which exists.
    pub fn new(root: PathBuf) -> Self {
        Self {
            file_system: FileSystem::of(&root),
            identity: identity(&root).ok(),
            stopped: false,
            root,
            open: Mutex::default(),
            readers: Descriptors::default(),
            syncing: Turns::default(),
            leftovers: Leftovers::default(),
        }
    }

    /// Those of a store that does not run, or not yet: few of them are open at once.
    pub(crate) fn of_stopped(root: PathBuf) -> Self {
        Self {
            stopped: true,
            ..Self::new(root)
        }
    }

    /// A store runs from now on.
    pub(crate) fn run(&mut self) {
        self.stopped = false;
    }

    /// What the file system has left, where it tells.
    pub(crate) fn room(&self) -> Option<Room> {
        Room::at(&self.root)
    }

    /// Descriptors that these files may have in all: those that they have, those that can be spared,
    /// and those that nobody has. None where the system does not tell.
    pub(crate) fn descriptors(&self) -> Option<u64> {
        let left = descriptors_left()?;
        Some(left + (self.open_count() + self.readers.count()) as u64)
    }

    /// Why what is written now would go elsewhere, or None.
    pub(crate) fn moved(&self) -> Option<String> {
        let gone = match identity(&self.root) {
            Ok(found) => self.identity.is_some_and(|own| own != found),
            Err(error) => is_absent(&error),
        };
        gone.then(|| {
            format!(
                "{} is not the folder any more that this node has opened: put that back, and restart",
                self.root.display()
            )
        })
    }

    /// Files that are open for writing.
    pub fn open_count(&self) -> usize {
        self.cache().len()
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Map<Path, Arc<File>>> {
        // A map of descriptors is sound whatever a thread that died was doing.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn full(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The open file, opened where it is not.
    fn file(&self, path: &Path, create: bool) -> io::Result<Arc<File>> {
        if let Some(file) = self.cache().get(path) {
            return Ok(file.clone());
        }
        self.leftovers.forget(|left| left == &**path);
        let mut options = OpenOptions::new();
        let options = options
            .read(true)
            .write(true)
            .create(create)
            .truncate(false);
        let file = self.sparing(|| options.open(self.full(path)))?;
        let file = Arc::new(file);
        self.cache().insert(path.clone(), file.clone());
        Ok(file)
    }

    /// Opens something; where descriptors have run out, again without those that can be spared.
    fn sparing<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match open() {
            Err(error) if is_out_of_descriptors(&error) => {
                self.readers.forget(|_| true);
                if self.stopped {
                    self.settle()?;
                }
                open()
            }
            outcome => outcome,
        }
    }

    /// Closes all that is open for writing, once it is synced: where no store runs nobody waits for
    /// one of them longer than for all.
    fn settle(&self) -> io::Result<()> {
        let open = std::mem::take(&mut *self.cache());
        open.values().try_for_each(|file| file.sync_data())
    }

    /// The file for reading, where it is open.
    pub(crate) fn opened(&self, path: &str) -> Option<Arc<File>> {
        let open = self.cache().get(path).cloned();
        open.or_else(|| self.readers.get(path))
    }

    fn reader(&self, path: &str) -> io::Result<Arc<File>> {
        if let Some(file) = self.cache().get(path) {
            return Ok(file.clone());
        }
        let open = || File::open(self.full(path));
        self.sparing(|| self.readers.open(path, open))
    }

    /// Has the kernel read these bytes, as many as there are, and does not wait. What goes wrong,
    /// the read that follows tells.
    pub(crate) fn read_ahead(&self, path: &str, position: u64, bytes: usize) {
        if let Ok(file) = self.reader(path) {
            let (start, bytes) = (position as libc::off_t, bytes as libc::off_t);
            let advice = libc::POSIX_FADV_WILLNEED;
            // SAFETY: the descriptor is open for the length of the call.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), start, bytes, advice) };
        }
    }

    fn folder(&self, path: &str) -> io::Result<File> {
        self.sparing(|| File::open(self.full(path)))
    }

    fn close(&self, path: &str) {
        self.cache().remove(path);
    }

    /// Forgets the descriptors for writing of `path` and of what is below it.
    fn forget(&self, path: &str) {
        self.cache().retain(|open, _| !is_within(open, path));
    }

    /// Forgets those for reading, once a name has gone: until then readers may open it again.
    fn forget_readers(&self, path: &str) {
        self.readers.forget(|open| is_within(open, path));
    }

    fn try_perform(&self, op: &DiskOp) -> io::Result<()> {
        match op {
            DiskOp::CreateFolder { path } => match fs::create_dir(self.full(path)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                outcome => outcome,
            },
            DiskOp::Create { path } => self.file(path, true).map(drop),
            DiskOp::Write {
                path,
                position,
                data,
            } => self.file(path, false)?.write_all_at(data, *position),
            DiskOp::Zero { path, bytes } => zero(&*self.file(path, true)?, *bytes),
            DiskOp::SetLength { path, bytes } => self.file(path, false)?.set_len(*bytes),
            DiskOp::WriteOut { path } => {
                write_out(&*self.reader(path)?);
                Ok(())
            }
            DiskOp::Sync { .. } | DiskOp::SyncFolder { .. } | DiskOp::Settle { .. } => {
                unreachable!("`perform_each` has these synced")
            }
            DiskOp::Rename { from, to } => {
                self.forget(from);
                self.forget(to);
                let moves = |left: &str| is_within(left, from) || is_within(left, to);
                self.leftovers.forget(moves);
                let outcome = fs::rename(self.full(from), self.full(to));
                self.forget_readers(from);
                self.forget_readers(to);
                outcome
            }
            DiskOp::Remove { path } => self.remove(path, |file| fs::remove_file(file)),
            DiskOp::LetGo { path } => {
                if let Err(why) = self.try_remove_file(path) {
                    self.leftovers.note_file(path, why);
                }
                Ok(())
            }
            DiskOp::RemoveFolder { path } => {
                if let Err(why) = self.try_remove_folder(path) {
                    self.leftovers.note_folder(path, why);
                }
                Ok(())
            }
            DiskOp::RemoveEmpty { path } => {
                let _ = fs::remove_dir(self.full(path)); // it may stay
                Ok(())
            }
            DiskOp::Close { path } => {
                self.close(path);
                Ok(())
            }
        }
    }

    fn remove(&self, path: &str, remove: impl Fn(&FsPath) -> io::Result<()>) -> io::Result<()> {
        self.forget(path);
        let outcome = present(remove(&self.full(path)));
        self.forget_readers(path);
        outcome
    }

    fn try_remove_file(&self, path: &str) -> Result<(), String> {
        self.remove(path, |file| fs::remove_file(file))
            .map_err(|error| self.error(path, "removing", &error).text)
    }

    fn try_remove_folder(&self, path: &str) -> Result<(), String> {
        self.remove(path, |folder| fs::remove_dir_all(folder))
            .map_err(|error| self.error(path, "removing", &error).text)
    }

    /// Removes what could not be removed before.
    pub(crate) fn retry_leftovers(&self) {
        self.leftovers.retry(
            |path| self.try_remove_file(path),
            |path| self.try_remove_folder(path),
        );
    }

    /// Performs effects in order, as [`Disk::perform_all`] does. Each sync is told before what follows
    /// on it, and before the next of its file begins: of a page that was lost the kernel tells once,
    /// and two threads would have to guess which of them it was told first.
    pub(crate) fn perform_heard(&self, ops: &[DiskOp], hear: Hear) -> Result<(), DiskError> {
        let is_sync = |op: &DiskOp| op.is_sync() || matches!(op, DiskOp::WriteOut { .. });
        for run in ops.chunk_by(|a, b| is_sync(a) == is_sync(b)) {
            if is_sync(&run[0]) {
                self.sync_together(run, hear)?;
            } else {
                self.perform_each(run, hear)?;
            }
        }
        Ok(())
    }

    /// Syncs of many files, as one where that is known to be as good.
    fn sync_together(&self, ops: &[DiskOp], hear: Hear) -> Result<(), DiskError> {
        let syncs: Vec<&DiskOp> = ops.iter().filter(|op| op.is_sync()).collect();
        let (Some(system), [others @ .., last]) = (&self.file_system, &*syncs) else {
            return self.perform_each(ops, hear);
        };
        if syncs.len() < SYNCS_MIN {
            return self.perform_each(ops, hear);
        }
        let written = system.write();
        hear(written.map_err(|error| DiskError {
            lossy: true,
            ..self.error("", "syncing the file system of", &error)
        }))?;
        // What was not open before is opened here, one after the other: of a write-back that failed
        // without a descriptor `syncfs` has told.
        let ask = |op: &DiskOp, file: &File| match op {
            _ if !system.holds(file)? => file.sync_all(),
            DiskOp::Sync { .. } => check_written(file),
            _ => Ok(()), // a folder has no pages of its own
        };
        others.iter().try_for_each(|op| self.sync(op, hear, ask))?;
        self.perform_each(std::slice::from_ref(last), hear)
    }

    /// See [`DiskOp::Settle`].
    fn settle_all(&self, paths: &[Path]) -> Result<(), DiskError> {
        let is_there = |path: &&Path| !matches!(self.size(path), Ok(None));
        let paths = paths.iter().filter(is_there);
        let sync = |path: &Path| DiskOp::Sync { path: path.clone() };
        self.sync_together(&paths.clone().map(sync).collect::<Vec<_>>(), &|end| end)?;
        for path in paths {
            let dropped = self.file(path, false).and_then(|file| drop_cache(&file));
            dropped.map_err(|error| self.error(path, "syncing", &error))?;
            self.close(path);
        }
        Ok(())
    }

    /// One sync, which `ask` performs.
    fn sync(
        &self,
        op: &DiskOp,
        hear: Hear,
        ask: impl Fn(&DiskOp, &File) -> io::Result<()>,
    ) -> Result<(), DiskError> {
        let (_, path) = describe(op);
        let _turn = self.syncing.take(path);
        let opened = self.target(op).map_err(|error| self.failure(op, &error));
        hear(opened.and_then(|file| ask(op, &file).map_err(|error| self.lossy(op, &error))))?;
        self.synced(op);
        Ok(())
    }

    fn synced(&self, op: &DiskOp) {
        if let (true, DiskOp::Sync { path }) = (self.stopped, op) {
            self.close(path);
        }
    }

    /// What a sync is of.
    fn target(&self, op: &DiskOp) -> io::Result<Arc<File>> {
        match op {
            DiskOp::SyncFolder { path } => self.folder(path).map(Arc::new),
            DiskOp::Sync { path } => self.file(path, false),
            _ => unreachable!("it is no sync"),
        }
    }

    fn perform_each(&self, ops: &[DiskOp], hear: Hear) -> Result<(), DiskError> {
        ops.iter().try_for_each(|op| match op {
            DiskOp::Settle { paths } => self.settle_all(paths),
            DiskOp::Sync { .. } => self.sync(op, hear, |_, file| file.sync_data()),
            DiskOp::SyncFolder { .. } => self.sync(op, hear, |_, folder| folder.sync_all()),
            op => self
                .try_perform(op)
                .map_err(|error| self.failure(op, &error)),
        })
    }

    fn failure(&self, op: &DiskOp, error: &io::Error) -> DiskError {
        let (verb, path) = describe(op);
        self.error(path, verb, error)
    }

    /// Of a sync whose file could be opened.
    fn lossy(&self, op: &DiskOp, error: &io::Error) -> DiskError {
        DiskError {
            lossy: true,
            ..self.failure(op, error)
        }
    }

    fn error(&self, path: &str, verb: &str, error: &io::Error) -> DiskError {
        let file = self.full(path);
        let remedy = remedy(error, self.room(), &self.root);
        DiskError {
            text: format!("{verb} {} failed: {error}: {remedy}", file.display()),
            unreadable: verb == READING && error.raw_os_error() == Some(libc::EIO),
            lossy: false,
        }
    }
}

impl Disk for Files {
    fn list(&self, folder: &str) -> Result<Vec<String>, DiskError> {
        let names = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in self.sparing(|| fs::read_dir(self.full(folder)))? {
                // A name that is no text is none of ours.
                names.extend(entry?.file_name().into_string());
            }
            names.sort_unstable();
            Ok(names)
        };
        match names() {
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            outcome => outcome.map_err(|error| self.error(folder, "listing", &error)),
        }
    }

    fn size(&self, path: &str) -> Result<Option<u64>, DiskError> {
        match fs::metadata(self.full(path)) {
            Err(error) if is_absent(&error) => Ok(None),
            outcome => outcome
                .map(|found| Some(found.len()))
                .map_err(|error| self.error(path, "looking at", &error)),
        }
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        self.reader(path)
            .and_then(|file| read_at(&file, position, bytes))
            .map_err(|error| self.error(path, READING, &error))
    }

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        self.perform_each(std::slice::from_ref(op), &|end| end)
    }

    fn perform_all(&self, ops: &[DiskOp]) -> Result<(), DiskError> {
        self.perform_heard(ops, &|end| end)
    }
}

/// `path` is `folder`, or below it.
fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What an effect does, as the subject of a sentence.
fn describe(op: &DiskOp) -> (&'static str, &Path) {
    match op {
        DiskOp::CreateFolder { path } | DiskOp::Create { path } => ("creating", path),
        DiskOp::Write { path, .. } => ("writing", path),
        DiskOp::Zero { path, .. } => ("preallocating", path),
        DiskOp::SetLength { path, .. } => ("resizing", path),
        DiskOp::WriteOut { path } | DiskOp::Sync { path } | DiskOp::SyncFolder { path } => {
            ("syncing", path)
        }
        DiskOp::Settle { .. } => unreachable!("it is many"),
        DiskOp::Rename { from, .. } => ("renaming", from),
        DiskOp::Remove { path }
        | DiskOp::LetGo { path }
        | DiskOp::RemoveFolder { path }
        | DiskOp::RemoveEmpty { path } => ("removing", path),
        DiskOp::Close { path } => ("closing", path),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn present(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if is_absent(&error) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests;
