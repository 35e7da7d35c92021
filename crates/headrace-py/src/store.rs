//! The log engine for Python. Calls that touch the disk release the GIL; `append` and `poll`,
//! which run per batch on the event loop, take a lock for moments only and keep it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::RawFd;
use std::path::Path;

use headrace_core::log::{
    self, Bounds, CompactionSettings, LogId, Options, SourceState, COMMIT_BUCKETS_NS,
};
use headrace_io as io;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::log_error;
use crate::facts::{Appended, Compaction, Completion, LogSettings, ReadEnd, Recovery, Segment};
use crate::records::Buffer;

/// Journal files are whole pages; a size that is not is rounded up.
const PAGE_BYTES: u64 = 4096;

/// The node's journal and segments, and the native threads that write them.
#[pyclass(frozen, module = "headrace._native")]
struct Store(io::Store);

/// Offset, state, files of no use.
type State<'py> = (i64, Bound<'py, PyBytes>, Vec<String>);

/// A number that no client knows.
pub fn random_seed() -> u32 {
    RandomState::new().hash_one(std::process::id()) as u32
}

/// Runs without the GIL; errors cross once.
pub fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, log::Error> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|error| log_error(py, &error))
}

#[pymethods]
impl Store {
    #[staticmethod]
    #[pyo3(signature = (
        path, *, journal_bytes = 67_108_864, segment_bytes = 1_073_741_824,
        index_interval_bytes = 4096, direct_write_bytes = 1_048_576, reserve_bytes = 268_435_456,
    ))]
    fn open(
        py: Python<'_>,
        path: &str,
        journal_bytes: u64,
        segment_bytes: u64,
        index_interval_bytes: u64,
        direct_write_bytes: u64,
        reserve_bytes: u64,
    ) -> PyResult<Self> {
        let options = Options {
            journal_bytes: journal_bytes.next_multiple_of(PAGE_BYTES),
            segment_bytes,
            index_interval_bytes,
            direct_write_bytes,
            reserve_bytes,
            // std draws its hash keys from the system's randomness: a number no client knows.
            seed: random_seed(),
            bounds: Bounds::NODE,
        };
        detached(py, || io::Store::open(Path::new(path), options)).map(Self)
    }

    #[getter]
    fn recovery(&self) -> Recovery {
        Recovery(self.0.recovery())
    }

    fn notify_fd(&self) -> RawFd {
        self.0.notify_fd()
    }

    #[pyo3(signature = (stream, first, count, incarnation))]
    fn check_logs(
        &self,
        py: Python<'_>,
        stream: &str,
        first: u32,
        count: u32,
        incarnation: u64,
    ) -> PyResult<()> {
        let partitions = first..first.saturating_add(count);
        detached(py, || self.0.check_logs(stream, partitions, incarnation))
    }

    #[pyo3(signature = (stream, first, count, incarnation, wall_ms))]
    fn open_logs(
        &self,
        py: Python<'_>,
        stream: &str,
        first: u32,
        count: u32,
        incarnation: u64,
        wall_ms: i64,
    ) -> PyResult<Vec<u32>> {
        let partitions = first..first.saturating_add(count);
        let opened = detached(py, || {
            self.0.open_logs(stream, partitions, incarnation, wall_ms)
        });
        Ok(opened?.into_iter().map(|log| log.0).collect())
    }

    #[pyo3(signature = (stream, partition, incarnation, wall_ms))]
    fn open_log(
        &self,
        py: Python<'_>,
        stream: &str,
        partition: u32,
        incarnation: u64,
        wall_ms: i64,
    ) -> PyResult<u32> {
        let opened = detached(py, || {
            self.0.open_log(stream, partition, incarnation, wall_ms)
        });
        opened.map(|log| log.0)
    }

    fn created(&self, py: Python<'_>, stream: &str) -> PyResult<()> {
        detached(py, || self.0.created(stream))
    }

    fn held_logs(&self) -> Vec<(String, u32, u64, bool)> {
        let held = self.0.held_logs().into_iter();
        held.map(|log| (log.stream, log.partition, log.incarnation, log.has_past))
            .collect()
    }

    fn configure(&self, py: Python<'_>, log: u32, settings: &LogSettings) -> PyResult<()> {
        self.0
            .configure(LogId(log), settings.0)
            .map_err(|error| log_error(py, &error))
    }

    fn delete_stream(&self, py: Python<'_>, stream: &str) -> PyResult<()> {
        detached(py, || self.0.delete_stream(stream))
    }

    #[pyo3(signature = (log, batches, ticket, wall_ms))]
    fn append(
        &self,
        py: Python<'_>,
        log: u32,
        batches: &[u8],
        ticket: u64,
        wall_ms: i64,
    ) -> PyResult<Appended> {
        self.0
            .append(LogId(log), batches.to_vec(), ticket, wall_ms)
            .map(Appended)
            .map_err(|error| log_error(py, &error))
    }

    fn lead(&self, py: Python<'_>, log: u32, epoch: i32) -> PyResult<()> {
        self.0
            .lead(LogId(log), epoch)
            .map_err(|error| log_error(py, &error))
    }

    fn roll(&self, py: Python<'_>, log: u32, wall_ms: i64) -> PyResult<()> {
        self.0
            .roll(LogId(log), wall_ms)
            .map_err(|error| log_error(py, &error))
    }

    fn forget_silent(&self, py: Python<'_>, log: u32, wall_ms: i64) -> PyResult<()> {
        self.0
            .forget_silent(LogId(log), wall_ms)
            .map_err(|error| log_error(py, &error))
    }

    fn trim(&self, py: Python<'_>, log: u32, offset: i64) -> PyResult<()> {
        detached(py, || self.0.trim(LogId(log), offset))
    }

    fn segments(&self, py: Python<'_>, log: u32) -> PyResult<Vec<Segment>> {
        let facts = self.0.segments(LogId(log));
        let facts = facts.map_err(|error| log_error(py, &error))?;
        Ok(facts.into_iter().map(Segment).collect())
    }

    fn submit(&self) {
        self.0.submit();
    }

    fn poll(&self) -> Vec<Completion> {
        self.0.poll().into_iter().map(Completion).collect()
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        log: u32,
        offset: i64,
        max_bytes: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = detached(py, || self.0.read(LogId(log), offset, max_bytes))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn fetch(
        &self,
        py: Python<'_>,
        log: u32,
        offset: i64,
        max_bytes: usize,
        ticket: u64,
    ) -> PyResult<Option<Buffer>> {
        let batches = detached(py, || self.0.fetch(LogId(log), offset, max_bytes, ticket))?;
        Ok(batches.map(Buffer::new))
    }

    fn seek(&self, py: Python<'_>, log: u32, timestamp_ms: i64, ticket: u64) -> PyResult<()> {
        self.0
            .seek(LogId(log), timestamp_ms, ticket)
            .map_err(|error| log_error(py, &error))
    }

    fn cancel_read(&self, ticket: u64) {
        self.0.cancel_read(ticket);
    }

    fn poll_reads(&self, py: Python<'_>) -> PyResult<Vec<ReadEnd>> {
        let ends = self.0.poll_reads().into_iter();
        ends.map(|end| ReadEnd::new(py, end)).collect()
    }

    fn bounds(&self, py: Python<'_>, log: u32) -> PyResult<(i64, i64)> {
        self.0
            .bounds(LogId(log))
            .map_err(|error| log_error(py, &error))
    }

    fn size_bytes(&self, py: Python<'_>, log: u32) -> PyResult<u64> {
        self.0
            .size_bytes(LogId(log))
            .map_err(|error| log_error(py, &error))
    }

    fn readable_bytes(&self, py: Python<'_>, log: u32, offset: i64) -> PyResult<u64> {
        self.0
            .readable_bytes(LogId(log), offset)
            .map_err(|error| log_error(py, &error))
    }

    fn offset_for_time(
        &self,
        py: Python<'_>,
        log: u32,
        timestamp_ms: i64,
    ) -> PyResult<Option<(i64, i64)>> {
        detached(py, || self.0.offset_for_time(LogId(log), timestamp_ms))
    }

    fn last_sources(&self, py: Python<'_>, log: u32) -> PyResult<Vec<SourceState>> {
        detached(py, || self.0.last_sources(LogId(log)))
    }

    fn save_sources(&self, py: Python<'_>, log: u32, sources: Vec<SourceState>) -> PyResult<()> {
        detached(py, move || self.0.save_sources(LogId(log), &sources))
    }

    #[pyo3(signature = (log, *, around_damage = false))]
    fn refresh_sources(&self, py: Python<'_>, log: u32, around_damage: bool) -> PyResult<()> {
        detached(py, || self.0.refresh_sources(LogId(log), around_damage))
    }

    fn unkept_bytes(&self, py: Python<'_>, log: u32) -> PyResult<u64> {
        detached(py, || self.0.unkept_bytes(LogId(log)))
    }

    fn save_state(&self, py: Python<'_>, log: u32, offset: i64, state: &[u8]) -> PyResult<()> {
        detached(py, || self.0.save_state(LogId(log), offset, state))
    }

    fn load_state<'py>(&self, py: Python<'py>, log: u32) -> PyResult<State<'py>> {
        let found = detached(py, || self.0.load_state(LogId(log)))?;
        let state = PyBytes::new(py, &found.state);
        Ok((found.offset, state, found.ignored))
    }

    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    #[pyo3(signature = (log, *, wall_ms, delete_retention_ms, min_lag_ms, span_ms = None, bytes_per_second))]
    fn compact(
        &self,
        py: Python<'_>,
        log: u32,
        wall_ms: i64,
        delete_retention_ms: u64,
        min_lag_ms: u64,
        span_ms: Option<u64>,
        bytes_per_second: u64,
    ) -> PyResult<Compaction> {
        let settings = CompactionSettings {
            wall_ms,
            delete_retention_ms,
            min_lag_ms,
            span_ms,
        };
        let compact = || self.0.compact(LogId(log), settings, bytes_per_second);
        detached(py, compact).map(Compaction)
    }

    fn fail(&self, py: Python<'_>, reason: &str) {
        py.detach(|| self.0.fail(reason));
    }

    fn failed(&self) -> Option<String> {
        self.0.failed()
    }

    fn full(&self) -> Option<String> {
        self.0.full()
    }

    fn leftovers(&self) -> Option<String> {
        self.0.leftovers()
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "exact to 2^53, beyond any counter here"
    )]
    fn statistics(&self) -> BTreeMap<String, f64> {
        let (counted, open_files) = self.0.statistics();
        let seconds = |ns: u64| ns as f64 / 1e9;
        let mut all: BTreeMap<String, f64> = [
            ("rounds_total", counted.rounds as f64),
            ("round_seconds_total", seconds(counted.round_ns)),
            ("journal_bytes_total", counted.journal_bytes as f64),
            ("journal_rotations_total", counted.journal_rotations as f64),
            ("syncs_total", counted.syncs as f64),
            ("appended_batches_total", counted.appended_batches as f64),
            ("appended_bytes_total", counted.appended_bytes as f64),
            ("direct_writes_total", counted.direct_writes as f64),
            ("duplicates_total", counted.duplicates as f64),
            ("segment_rolls_total", counted.segment_rolls as f64),
            ("append_seconds_sum", seconds(counted.commit_ns)),
            ("queued_bytes", counted.queued_bytes as f64),
            (
                "appends_refused_total{reason=\"disk_full\"}",
                counted.refused_full as f64,
            ),
            ("logs", counted.logs as f64),
            ("open_files", open_files as f64),
            ("leftovers", self.0.leftover_count() as f64),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        if let Some(free) = self.0.free_bytes() {
            all.insert("free_bytes".into(), free as f64);
        }
        let bounds = COMMIT_BUCKETS_NS
            .iter()
            .map(|bound| seconds(*bound).to_string());
        let mut below = 0;
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(counted.commits) {
            below += count;
            all.insert(
                format!("append_seconds_bucket{{le=\"{bound}\"}}"),
                below as f64,
            );
        }
        all.insert("append_seconds_count".into(), below as f64);
        all
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.0.close())
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Store>()
}
