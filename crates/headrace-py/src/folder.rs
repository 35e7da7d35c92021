//! The data folder of a stopped node for Python. Every call releases the GIL.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use headrace_core::log::inspect::{Class, Consent};
use headrace_core::log::{Bounds, Error, Options};
use headrace_io as io;
use pyo3::prelude::*;

use crate::errors::log_error;
use crate::store::{detached, random_seed};

type Incarnations = BTreeMap<String, u64>;
type Lost = Option<(i64, i64)>;

/// A data folder that no node uses; None once it is closed.
#[pyclass(frozen, module = "headrace._native")]
struct Folder(Mutex<Option<io::Folder>>);

impl Folder {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&io::Folder) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        detached(py, || {
            let folder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let closed = || Error::Storage("the folder is closed".into());
            work(folder.as_ref().ok_or_else(closed)?)
        })
    }
}

// Arguments arrive as values of their own.
#[allow(clippy::needless_pass_by_value, clippy::type_complexity)]
#[pymethods]
impl Folder {
    #[staticmethod]
    #[pyo3(signature = (
        path,
        *,
        repairs = false,
        journal_bytes = 67_108_864,
        index_interval_bytes = 4096
    ))]
    fn open(
        py: Python<'_>,
        path: &str,
        repairs: bool,
        journal_bytes: u64,
        index_interval_bytes: u64,
    ) -> PyResult<Self> {
        let options = Options {
            journal_bytes,
            index_interval_bytes,
            segment_bytes: 1 << 30,
            direct_write_bytes: 1 << 20,
            reserve_bytes: 0,
            seed: random_seed(),
            bounds: Bounds::NODE,
        };
        options.check().map_err(|error| log_error(py, &error))?;
        detached(py, || io::Folder::open(Path::new(path), options, repairs))
            .map(|folder| Self(Mutex::new(Some(folder))))
    }

    #[pyo3(signature = (incarnations, stream = None, partition = None, progress = None))]
    fn verify(
        &self,
        py: Python<'_>,
        incarnations: Incarnations,
        stream: Option<String>,
        partition: Option<u32>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Vec<(&'static str, String, u64, Option<i64>, String, Lost)>> {
        let wanted = wanted(stream, partition);
        let mut failed = None;
        let tell = |bytes: u64| {
            if let Some(progress) = &progress {
                let outcome = Python::attach(|py| progress.call1(py, (bytes,)).map(drop));
                failed = failed.take().or(outcome.err());
            }
        };
        let findings = self.with(py, |folder| folder.verify(&incarnations, wanted, tell))?;
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(findings
            .into_iter()
            .map(|finding| {
                let damage = finding.damage;
                let class = match finding.class {
                    Class::Records => "records",
                    Class::Journal => "journal",
                    Class::Side => "side",
                };
                (
                    class,
                    damage.path,
                    damage.position,
                    damage.offset,
                    damage.what,
                    finding.lost,
                )
            })
            .collect())
    }

    #[pyo3(signature = (
        incarnations,
        stream = None,
        partition = None,
        *,
        drop_damaged = false,
        rebuild_journal = false,
        dry = false
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn repair(
        &self,
        py: Python<'_>,
        incarnations: Incarnations,
        stream: Option<String>,
        partition: Option<u32>,
        drop_damaged: bool,
        rebuild_journal: bool,
        dry: bool,
    ) -> PyResult<Vec<(String, String, Lost, bool)>> {
        let consent = Consent {
            drop_damaged,
            rebuild_journal,
        };
        let wanted = wanted(stream, partition);
        let actions = self.with(py, |folder| {
            folder.repair(&incarnations, wanted, consent, dry)
        })?;
        Ok(actions
            .into_iter()
            .map(|action| (action.path, action.what, action.lost, action.backup))
            .collect())
    }

    fn journal(&self, py: Python<'_>) -> PyResult<Vec<(String, u64, u64, String)>> {
        let entries = self.with(py, io::Folder::journal)?;
        Ok(entries
            .into_iter()
            .map(|entry| (entry.path, entry.position, entry.round, entry.text))
            .collect())
    }

    fn logs(
        &self,
        py: Python<'_>,
        incarnations: Incarnations,
    ) -> PyResult<Vec<(String, u32, u64, i64, Vec<(i64, u64, String)>)>> {
        let logs = self.with(py, |folder| folder.logs(&incarnations))?;
        Ok(logs
            .into_iter()
            .map(|log| {
                (
                    log.stream,
                    log.partition,
                    log.incarnation,
                    log.start_offset,
                    log.segments,
                )
            })
            .collect())
    }

    fn snapshots(
        &self,
        py: Python<'_>,
        stream: String,
        partition: u32,
    ) -> PyResult<Vec<(String, Option<Vec<String>>)>> {
        let found = self.with(py, |folder| folder.snapshots(&stream, partition))?;
        Ok(found
            .into_iter()
            .map(|snapshot| (snapshot.path, snapshot.lines))
            .collect())
    }

    fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Which logs are asked for, where None is all.
fn wanted(stream: Option<String>, partition: Option<u32>) -> impl Fn(&str, u32) -> bool {
    move |found, index| {
        stream.as_deref().is_none_or(|name| name == found)
            && partition.is_none_or(|wanted| wanted == index)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Folder>()
}
