//! Load on an MQTT server, payloads of records and their judge, for `headrace.bench`.
use std::net::SocketAddr;
use std::time::Duration;

use headrace_bench::{
    stamp, Latency, Load, Pace, Pattern, Plan, Queue, QueueReport, Report, Storm, StormReport,
    QUANTILES,
};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList};

/// A run that goes on by itself.
#[pyclass(module = "headrace._native")]
struct MqttLoad {
    load: Option<Load>,
    adds: Adds,
}

/// What the counts of a pattern have beside those of any.
#[derive(Clone, Copy)]
enum Adds {
    Nothing,
    Queue,
    Storm,
}

/// How long sessions of a storm last where the plan does not say.
const STORM_EXPIRY_S: u32 = 3600;

/// How a queue is used, as a dictionary has it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct QueueUse {
    ack_batch: usize,
    prefetch: u16,
    stuck: u32,
    keys: u32,
    fill: u64,
    fills_only: bool,
    open: u64,
    at_random: bool,
}

impl QueueUse {
    fn checked(self, publishers: u32, subscribers: u32) -> Result<Queue, &'static str> {
        if self.stuck >= subscribers {
            return Err("a queue takes a consumer that settles");
        }
        if self.ack_batch > usize::from(self.prefetch) || self.prefetch == 0 {
            return Err("prefetch is 1 to 65535, and a batch as large at most");
        }
        if self.fill > 0 && publishers == 0 {
            return Err("a queue is filled by publishers");
        }
        Ok(Queue {
            ack_batch: self.ack_batch,
            prefetch: self.prefetch,
            stuck: self.stuck,
            keys: self.keys,
            fill: self.fill,
            fills_only: self.fills_only,
            open: self.open,
            at_random: self.at_random,
        })
    }
}

#[pymethods]
impl MqttLoad {
    #[new]
    #[pyo3(signature = (server, *, version, prefix, credentials, session_expiry, publishers,
        subscribers, idle, opening, pattern, qos, payload, window, rate, warm_up, duration, drain,
        queue = None, queued = 0))]
    #[allow(clippy::too_many_arguments)] // Named ones, and each is one line of the plan.
    fn new(
        server: &str,
        version: u8,
        prefix: String,
        credentials: Option<(String, Vec<u8>)>,
        session_expiry: u32,
        publishers: u32,
        subscribers: u32,
        idle: u32,
        opening: u32,
        pattern: &str,
        qos: u8,
        payload: usize,
        window: u32,
        rate: Option<f64>,
        warm_up: f64,
        duration: f64,
        drain: f64,
        queue: Option<QueueUse>,
        queued: u64,
    ) -> PyResult<Self> {
        let wrong = |what: &str| PyValueError::new_err(what.to_owned());
        let seconds = |value: f64| {
            Duration::try_from_secs_f64(value).map_err(|_| wrong("a time is negative"))
        };
        let plan = Plan {
            server: server
                .parse::<SocketAddr>()
                .map_err(|_| wrong("server is not an address and a port"))?,
            version: (version == 4 || version == 5)
                .then_some(version)
                .ok_or_else(|| wrong("version is 4 (MQTT 3.1.1) or 5"))?,
            prefix,
            credentials,
            session_expiry_s: match session_expiry {
                0 if pattern == "storm" => STORM_EXPIRY_S,
                seconds => seconds,
            },
            publishers: (publishers <= stamp::PUBLISHERS_MAX)
                .then_some(publishers)
                .ok_or_else(|| wrong("there are too many publishers"))?,
            subscribers,
            idle,
            opening: opening.max(1),
            pattern: match pattern {
                "queue" if version == 5 && qos == 1 => {
                    let queue = queue.ok_or_else(|| wrong("queue is missing"))?;
                    Pattern::Queue(queue.checked(publishers, subscribers).map_err(wrong)?)
                }
                "queue" => return Err(wrong("a queue takes MQTT 5.0 and QoS 1")),
                "storm" if qos == 0 || queued == 0 => {
                    return Err(wrong(
                        "messages wait for sessions at QoS 1 and 2; a storm takes one or more",
                    ))
                }
                "storm" if publishers == 0 || subscribers == 0 || subscribers % publishers > 0 => {
                    return Err(wrong(
                        "a storm takes as many subscribers as publishers, or a multiple",
                    ))
                }
                "storm" => Pattern::Storm(Storm { queued }),
                "pair" if publishers != subscribers => {
                    return Err(wrong("pair takes as many publishers as subscribers"))
                }
                "pair" => Pattern::Pair,
                "all" => Pattern::All,
                "share" => Pattern::Share,
                _ => return Err(wrong("pattern is pair, all, share, storm or queue")),
            },
            qos: (qos <= 2)
                .then_some(qos)
                .ok_or_else(|| wrong("qos is 0, 1 or 2"))?,
            payload: (stamp::LENGTH..=1 << 24)
                .contains(&payload)
                .then_some(payload)
                .ok_or_else(|| wrong("a payload has 16 bytes to 16 MiB"))?,
            pace: match rate {
                Some(rate) if rate > 0.0 && rate.is_finite() => Pace::Open { rate },
                None if (1..=u16::MAX.into()).contains(&window) => Pace::Closed { window },
                _ => return Err(wrong("rate is above 0, window 1 to 65535")),
            },
            warm_up: seconds(warm_up)?,
            duration: seconds(duration)?,
            drain: seconds(drain)?,
        };
        let adds = match plan.pattern {
            Pattern::Queue(_) => Adds::Queue,
            Pattern::Storm(_) => Adds::Storm,
            _ => Adds::Nothing,
        };
        let load = Load::start(plan).map_err(PyErr::from)?;
        Ok(Self {
            load: Some(load),
            adds,
        })
    }

    /// The counts so far.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dictionary(py, &self.running()?.progress(), self.adds)
    }

    fn is_over(&self) -> PyResult<bool> {
        Ok(self.running()?.is_over())
    }

    fn stop(&self) -> PyResult<()> {
        self.running()?.stop();
        Ok(())
    }

    /// Waits for the end.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.running()?;
        let load = self.load.take();
        let report = py.detach(|| load.map(Load::finish));
        dictionary(py, &report.expect("it was there")?, self.adds)
    }
}

impl MqttLoad {
    fn running(&self) -> PyResult<&Load> {
        self.load
            .as_ref()
            .ok_or_else(|| PyRuntimeError::new_err("the run was finished"))
    }
}

fn times<'py>(py: Python<'py>, latency: &Latency) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("count", latency.count)?;
    for (quantile, value) in QUANTILES.iter().zip(latency.quantiles) {
        result.set_item(format!("p{}", quantile * 100.0), value)?;
    }
    result.set_item("max", latency.max)?;
    Ok(result)
}

fn queue_dictionary<'py>(py: Python<'py>, report: &QueueReport) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    for (name, count) in [
        ("settled", report.settled),
        ("unsettled", report.unsettled),
        ("redelivered", report.redelivered),
        ("stuck", report.stuck),
        ("open", report.open),
        ("enqueued_measured", report.enqueued_measured),
        ("settled_measured", report.settled_measured),
    ] {
        result.set_item(name, count)?;
    }
    result.set_item("settled_by_second", &report.settled_by_second)?;
    result.set_item("fill_seconds", report.fill_seconds)?;
    result.set_item("enqueue", times(py, &report.enqueue)?)?;
    result.set_item("whole", times(py, &report.whole)?)?;
    result.set_item("settle", times(py, &report.settle)?)?;
    Ok(result)
}

fn storm_dictionary<'py>(py: Python<'py>, report: &StormReport) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("fill_seconds", report.fill_seconds)?;
    result.set_item("back_seconds", report.back_seconds)?;
    result.set_item("emptied_seconds", report.emptied_seconds)?;
    result.set_item("forgotten", report.forgotten)?;
    Ok(result)
}

fn dictionary<'py>(py: Python<'py>, report: &Report, adds: Adds) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    for (name, count) in [
        ("connected", report.connected),
        ("published", report.published),
        ("acknowledged", report.acknowledged),
        ("refused", report.refused),
        ("expected", report.expected),
        ("delivered", report.delivered),
        ("lost", report.lost),
        ("duplicated", report.duplicated),
        ("reordered", report.reordered),
        ("corrupted", report.corrupted),
        ("disconnected", report.disconnected),
        ("measured", report.measured),
    ] {
        result.set_item(name, count)?;
    }
    result.set_item("phase", report.phase)?;
    result.set_item("seconds", report.seconds)?;
    result.set_item("connect_seconds", report.connect_seconds)?;
    result.set_item("trouble", report.trouble.as_deref())?;
    result.set_item("by_second", &report.by_second)?;
    result.set_item("connect", times(py, &report.connect)?)?;
    result.set_item("latency", times(py, &report.latency)?)?;
    result.set_item("busy", report.busy)?;
    match adds {
        Adds::Nothing => {}
        Adds::Queue => result.set_item("queue", queue_dictionary(py, &report.queue)?)?,
        Adds::Storm => result.set_item("storm", storm_dictionary(py, &report.storm)?)?,
    }
    Ok(result)
}

/// The least that carries messages from publishers to subscribers.
#[pyclass(module = "headrace._native")]
struct MqttRelay {
    relay: Option<headrace_bench::Relay>,
    #[pyo3(get)]
    address: String,
}

#[pymethods]
impl MqttRelay {
    #[new]
    #[pyo3(
        signature = (address, *, drop_every = 0),
        text_signature = "(address, *, drop_every=0)"
    )]
    fn new(address: &str, drop_every: u64) -> PyResult<Self> {
        let address = address
            .parse()
            .map_err(|_| PyValueError::new_err("not an address and a port"))?;
        let relay = headrace_bench::Relay::start(address, drop_every)?;
        Ok(Self {
            address: relay.address().to_string(),
            relay: Some(relay),
        })
    }

    /// Ends it, once.
    fn stop(&mut self, py: Python<'_>) -> PyResult<()> {
        let relay = self.relay.take();
        py.detach(|| relay.map_or(Ok(()), headrace_bench::Relay::stop))?;
        Ok(())
    }
}

/// The payloads of one flow of records, in their order.
#[pyclass(module = "headrace._native")]
struct Payloads(headrace_bench::Payloads);

#[pymethods]
impl Payloads {
    #[new]
    fn new(topic: &str, flow: u32, size: usize) -> Self {
        Self(headrace_bench::Payloads::new(topic, flow, size))
    }

    /// The next `count` of them, due every `step_us` from `due_us` on.
    #[pyo3(signature = (count, due_us = 0, step_us = 0.0))]
    fn take<'py>(
        &mut self,
        py: Python<'py>,
        count: usize,
        due_us: u64,
        step_us: f64,
    ) -> PyResult<Bound<'py, PyList>> {
        let payloads = PyList::empty(py);
        let mut after = 0.0;
        for _ in 0..count {
            #[expect(clippy::cast_sign_loss, reason = "a step is 0 or more")]
            let due = due_us + after as u64;
            payloads.append(PyBytes::new(py, self.0.stamped(due)))?;
            after += step_us;
        }
        Ok(payloads)
    }
}

/// Holds what is read against what was sent.
#[pyclass(module = "headrace._native")]
struct RecordJudge(headrace_bench::RecordJudge);

#[pymethods]
impl RecordJudge {
    #[new]
    #[pyo3(
        signature = (topic, flows, size, measured_us = (0, 0)),
        text_signature = "(topic, flows, size, measured_us=(0, 0))"
    )]
    fn new(topic: &str, flows: u32, size: usize, measured_us: (u64, u64)) -> Self {
        let (from, to) = measured_us;
        Self(headrace_bench::RecordJudge::new(
            topic,
            flows,
            size,
            from..to,
        ))
    }

    #[getter]
    fn received(&self) -> u64 {
        self.0.received()
    }

    #[getter]
    fn distinct(&self) -> u64 {
        self.0.distinct()
    }

    fn take(&mut self, values: Vec<PyBackedBytes>, now_us: u64) {
        for value in values {
            self.0.take(&value, now_us);
        }
    }

    fn take_joined(&mut self, values: &Bound<'_, PyAny>, now_us: u64) -> PyResult<()> {
        let buffer = PyBuffer::<u8>::get(values)?;
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err("values are no contiguous bytes"));
        }
        let start = buffer.buf_ptr().cast::<u8>();
        if buffer.len_bytes() > 0 {
            // SAFETY: the buffer holds so many bytes and lives through the call, and nobody
            // writes to them while this thread holds the interpreter.
            let bytes = unsafe { std::slice::from_raw_parts(start, buffer.len_bytes()) };
            self.0.take_joined(bytes, now_us);
        }
        Ok(())
    }

    #[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts owned lists")]
    fn read<'py>(
        &self,
        py: Python<'py>,
        acknowledged: Vec<u64>,
        sent: Vec<u64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let read = self.0.read(&acknowledged, &sent);
        let result = PyDict::new(py);
        for (name, count) in [
            ("received", read.received),
            ("lost", read.lost),
            ("duplicated", read.duplicated),
            ("reordered", read.reordered),
            ("corrupted", read.corrupted),
        ] {
            result.set_item(name, count)?;
        }
        result.set_item("latency", times(py, &read.latency)?)?;
        Ok(result)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<MqttLoad>()?;
    module.add_class::<MqttRelay>()?;
    module.add_class::<Payloads>()?;
    module.add_class::<RecordJudge>()
}
