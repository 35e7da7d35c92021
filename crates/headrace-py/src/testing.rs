//! Simulated lives of the store and the checker of histories, for `headrace.testing`.

use headrace_core::testing::{self, Append, Sabotage, Seen, Setup};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A broken promise.
#[pyclass(frozen, get_all, module = "headrace._native")]
struct Anomaly {
    kind: &'static str,
    log: String,
    text: String,
}

#[pymethods]
impl Anomaly {
    fn __repr__(&self) -> String {
        format!("{} in {}: {}", self.kind, self.log, self.text)
    }
}

impl From<&testing::Anomaly> for Anomaly {
    fn from(found: &testing::Anomaly) -> Self {
        Self {
            kind: found.kind.name(),
            log: found.log.clone(),
            text: found.text.clone(),
        }
    }
}

/// What came of a seed.
#[pyclass(frozen, module = "headrace._native")]
struct SimulatedRun {
    setup: Setup,
    outcome: testing::Outcome,
}

#[pymethods]
impl SimulatedRun {
    #[getter]
    fn seed(&self) -> u64 {
        self.setup.seed
    }

    #[getter]
    fn fault(&self) -> &'static str {
        self.setup.sabotage.name()
    }

    #[getter]
    fn hash(&self) -> u64 {
        self.outcome.hash
    }

    #[getter]
    fn events(&self) -> u64 {
        self.outcome.events
    }

    #[getter]
    fn starts(&self) -> u64 {
        self.outcome.starts
    }

    #[getter]
    fn stored(&self) -> u64 {
        self.outcome.stored
    }

    #[getter]
    fn anomaly(&self) -> Option<Anomaly> {
        self.outcome.anomaly.as_ref().map(Anomaly::from)
    }

    #[getter]
    fn trace(&self) -> Vec<String> {
        self.outcome.lines.clone()
    }
}

/// The judge of a history.
#[pyclass(module = "headrace._native")]
#[derive(Default)]
struct History(testing::Checker);

#[pymethods]
impl History {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[pyo3(signature = (
        client, log, value, timestamp_ms, *, key = None, tombstone = false, may_repeat = false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn append(
        &mut self,
        client: &str,
        log: &str,
        value: u64,
        timestamp_ms: Option<i64>,
        key: Option<u64>,
        tombstone: bool,
        may_repeat: bool,
    ) {
        self.0.append(&Append {
            client,
            log,
            value,
            timestamp: timestamp_ms,
            key,
            tombstone,
            repeats: may_repeat,
        });
    }

    #[pyo3(signature = (value, offset = None))]
    fn stored(&mut self, value: u64, offset: Option<i64>) {
        self.0.stored(value, offset);
    }

    fn failed(&mut self, value: u64) {
        self.0.failed(value);
    }

    fn unknown(&mut self, value: u64) {
        self.0.unknown(value);
    }

    fn quiet(&mut self) {
        self.0.quiet();
    }

    fn crashed(&mut self) {
        self.0.crashed();
    }

    #[pyo3(signature = (reader, log, records, seek_to = None))]
    fn read(
        &mut self,
        reader: &str,
        log: &str,
        records: Vec<(i64, Option<u64>, i64)>,
        seek_to: Option<i64>,
    ) {
        self.0.read(reader, log, seek_to, &seen(records));
    }

    fn scan(&mut self, log: &str, start: i64, end: i64, records: Vec<(i64, Option<u64>, i64)>) {
        self.0.scan(log, start, end, &seen(records));
    }

    fn bounds(&mut self, log: &str, start: i64, end: i64) {
        self.0.bounds(log, start, end);
    }

    #[pyo3(signature = (log, timestamp_ms, found))]
    fn lookup(&mut self, log: &str, timestamp_ms: i64, found: Option<(i64, i64)>) {
        self.0.lookup(log, timestamp_ms, found);
    }

    fn trim(&mut self, log: &str, offset: i64) {
        self.0.trim(log, offset);
    }

    #[pyo3(signature = (log, below = i64::MAX, tombstones_below = i64::MAX))]
    fn compact(&mut self, log: &str, below: i64, tombstones_below: i64) {
        self.0.compact(log, below, tombstones_below);
    }

    fn cut(&mut self, log: &str, synced: i64, end: i64) {
        self.0.cut(log, synced, end);
    }

    #[getter]
    fn anomalies(&self) -> Vec<Anomaly> {
        self.0.anomalies().iter().map(Anomaly::from).collect()
    }

    #[getter]
    fn counts(&self) -> (u64, u64, u64) {
        self.0.counts()
    }
}

fn seen(records: Vec<(i64, Option<u64>, i64)>) -> Vec<Seen> {
    let seen = |(offset, value, timestamp)| Seen {
        offset,
        value,
        timestamp,
    };
    records.into_iter().map(seen).collect()
}

#[pyfunction]
#[pyo3(signature = (seed, *, fault = "none", trace = false))]
fn simulate(py: Python<'_>, seed: u64, fault: &str, trace: bool) -> PyResult<SimulatedRun> {
    let Some(sabotage) = Sabotage::from_name(fault) else {
        let names = faults().join(", ");
        return Err(PyValueError::new_err(format!(
            "there is no fault {fault:?}: choose one of {names}"
        )));
    };
    let setup = Setup {
        seed,
        sabotage,
        trace,
    };
    let outcome = py.detach(|| testing::simulate(setup));
    Ok(SimulatedRun { setup, outcome })
}

#[pyfunction]
fn faults() -> Vec<&'static str> {
    Sabotage::ALL.iter().map(|fault| fault.name()).collect()
}

#[pyfunction]
#[pyo3(signature = (value, bytes = 0))]
fn payload(py: Python<'_>, value: u64, bytes: usize) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &testing::payload(value, bytes))
}

#[pyfunction]
fn value_of(payload: &[u8]) -> Option<u64> {
    testing::value_of(payload)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Anomaly>()?;
    module.add_class::<SimulatedRun>()?;
    module.add_class::<History>()?;
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(faults, module)?)?;
    module.add_function(wrap_pyfunction!(payload, module)?)?;
    module.add_function(wrap_pyfunction!(value_of, module)?)
}
