//! `Switchboard`: its methods, a call of the core each. What they take and give is converted where
//! the types of a subject are.

mod effects;
mod limits;
mod publish;
mod queues;
mod retained;
mod streams;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use headrace_core::hash::Key;
use headrace_core::mqtt::reason;
use headrace_core::session::Ending;
use headrace_core::switchboard as core;
use headrace_core::Now;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::access::{AccessRules, Principal};
use crate::errors::record_error;
use crate::records::{codec_of, StreamPiece};
use crate::sessions::{SessionReport, SessionSummary};
use crate::trace::{subject_of, TraceLine};
use effects::{convert, ConnectRequest, Effects};
use limits::limits_from;
use publish::publish_of;
use queues::{end_of, QueueGroup, QueueMessage, QueueSettings};
use retained::{messages_of, state_of, Messages, RetainedMessage, State};
use streams::{lags_of, read_of, Placement, StreamRequest};

/// The MQTT data plane of one event loop; not thread-safe by design.
#[pyclass(module = "headrace._native")]
struct Switchboard(Box<core::Switchboard>); // the topic tree fills cache lines

/// Python's allocator aligns objects to 16 bytes, and Rust relies on its own alignment.
const _: () = assert!(align_of::<Switchboard>() <= 16);

#[pymethods]
impl Switchboard {
    #[new]
    #[pyo3(signature = (hash_key, **limits))]
    fn new(hash_key: (u64, u64), limits: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let limits = limits_from(core::Limits::default(), limits)?;
        let hash_key = Key(hash_key.0, hash_key.1);
        Ok(Self(Box::new(core::Switchboard::new(hash_key, limits))))
    }

    #[pyo3(signature = (mono_ms, wall_ms, **limits))]
    fn configure(
        &mut self,
        mono_ms: u64,
        wall_ms: i64,
        limits: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let limits = limits_from(self.0.limits().clone(), limits)?;
        self.0.set_limits(limits, now(mono_ms, wall_ms));
        Ok(())
    }

    #[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts owned lists")]
    fn bind(
        &mut self,
        stream: u64,
        partitions: u32,
        filters: Vec<String>,
        key: &str,
    ) -> PyResult<()> {
        let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
        self.0
            .bind(stream, partitions, &filters, key)
            .map_err(error)
    }

    fn shape(
        &mut self,
        stream: u64,
        codec: &str,
        batch_bytes_max: usize,
        compacts: bool,
    ) -> PyResult<()> {
        self.0
            .shape(stream, codec_of(codec)?, batch_bytes_max, compacts)
            .map_err(error)
    }

    fn unbind(&mut self, stream: u64) -> PyResult<()> {
        self.0.unbind(stream).map_err(error)
    }

    #[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts owned lists")]
    fn load_sources(
        &mut self,
        stream: u64,
        partition: u32,
        sources: Vec<(String, u64, u64)>,
    ) -> PyResult<()> {
        let sources = sources
            .iter()
            .map(|(name, epoch, sequence)| (name.as_str(), *epoch, *sequence));
        self.0
            .load_sources(stream, partition, sources)
            .map_err(error)
    }

    fn sources(&mut self, stream: u64, partition: u32) -> PyResult<Vec<(String, u64, u64)>> {
        self.0.sources(stream, partition).map_err(error)
    }

    fn opened(&mut self, connection: u64, mono_ms: u64, wall_ms: i64) -> PyResult<()> {
        self.0
            .opened(connection, now(mono_ms, wall_ms))
            .map_err(error)
    }

    /// The socket is gone. The session waits for its client as long as it may; then, or after its
    /// delay, the will is published unless DISCONNECT came first.
    fn closed(&mut self, connection: u64, mono_ms: u64, wall_ms: i64) -> PyResult<()> {
        self.0
            .closed(connection, now(mono_ms, wall_ms))
            .map_err(error)
    }

    fn receive(
        &mut self,
        connection: u64,
        data: &[u8],
        mono_ms: u64,
        wall_ms: i64,
    ) -> PyResult<()> {
        let now = now(mono_ms, wall_ms);
        self.0.receive(connection, data, now).map_err(error)
    }

    fn writable(&mut self, connection: u64, credit_bytes: usize) -> PyResult<()> {
        self.0.writable(connection, credit_bytes).map_err(error)
    }

    #[pyo3(signature = (request, reason_code, mono_ms, wall_ms, auth_data = None, principal = None))]
    fn decided(
        &mut self,
        request: u64,
        reason_code: u8,
        mono_ms: u64,
        wall_ms: i64,
        auth_data: Option<Vec<u8>>,
        principal: Option<&Principal>,
    ) -> PyResult<()> {
        let now = now(mono_ms, wall_ms);
        let verdict = core::Verdict {
            reason_code,
            auth_data,
            principal: principal.map(|principal| principal.0.clone()),
        };
        self.0.decided(request, verdict, now).map_err(error)
    }

    #[pyo3(signature = (rules, users, mono_ms, wall_ms, *, anonymous, certified, closes, silent))]
    #[expect(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "each is a setting of its own, and has a name in Python"
    )]
    fn control(
        &mut self,
        rules: Option<&AccessRules>,
        users: HashMap<String, Vec<String>>,
        mono_ms: u64,
        wall_ms: i64,
        anonymous: bool,
        certified: bool,
        closes: bool,
        silent: bool,
    ) {
        let access = rules.map(|rules| core::Access {
            rules: Arc::clone(&rules.0),
            lets_anonymous: anonymous,
            lets_certified: certified,
            closes,
            is_silent: silent,
        });
        let mut known = core::Users::with_hasher(self.0.hash_key());
        for (name, roles) in users {
            known.insert(name.into(), roles.into_iter().map(Into::into).collect());
        }
        self.0.control(access, &known, now(mono_ms, wall_ms));
    }

    fn placed(
        &mut self,
        request: u64,
        placements: Vec<Placement>,
        mono_ms: u64,
        wall_ms: i64,
    ) -> PyResult<()> {
        let placements = placements.into_iter().map(Into::into).collect();
        let now = now(mono_ms, wall_ms);
        self.0.placed(request, placements, now).map_err(error)
    }

    fn streams_read(&self) -> Vec<u64> {
        self.0.streams_read()
    }

    fn stream_readers(&self, stream: u64, count_max: usize) -> (Vec<(String, bool)>, usize) {
        self.0.stream_readers(stream, count_max)
    }

    #[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts owned maps")]
    fn stream_lags(
        &self,
        bounds: BTreeMap<u64, Vec<(i64, i64)>>,
        steps_max: usize,
    ) -> (BTreeMap<u64, (u64, u64)>, usize) {
        let (lags, left_out) = self.0.stream_lags(&bounds, steps_max);
        (lags_of(lags), left_out)
    }

    fn advanced(&mut self, stream: u64, partition: u32, end: i64) -> bool {
        self.0.advanced(stream, partition, end)
    }

    #[pyo3(signature = (stream, name, dead_letters, **settings))]
    fn set_queue(
        &mut self,
        stream: u64,
        name: &str,
        dead_letters: Option<u64>,
        settings: Option<QueueSettings>,
    ) -> PyResult<()> {
        let settings = settings.ok_or_else(|| PyValueError::new_err("settings are missing"))?;
        let settings = settings.of(name, dead_letters)?;
        self.0.set_queue(stream, settings).map_err(error)
    }

    fn queue_trimmed(&mut self, stream: u64, partition: u32, start: i64) {
        self.0.queue_trimmed(stream, partition, start);
    }

    fn queue_sized(&mut self, stream: u64, partition: u32, bounds: (i64, i64), size_bytes: u64) {
        self.0.sized(stream, partition, bounds, size_bytes);
    }

    fn queue_takes(&mut self, stream: u64, batches: &[u8]) -> Option<u64> {
        self.0.take_room(stream, batches)
    }

    fn queue_took(&mut self, stream: u64, messages: u64, size_bytes: u64) {
        self.0.room_taken(stream, messages, size_bytes);
    }

    fn queue_groups(&self, stream: u64) -> Vec<QueueGroup> {
        let groups = self.0.queue_groups(stream).unwrap_or_default();
        groups.into_iter().map(QueueGroup::from).collect()
    }

    fn queue_floors(&self, stream: u64) -> Option<Vec<i64>> {
        self.0.queue_floors(stream)
    }

    #[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts owned lists")]
    fn seek_queue(
        &mut self,
        stream: u64,
        group: Option<&str>,
        offsets: Vec<i64>,
        request: u64,
        mono_ms: u64,
        wall_ms: i64,
    ) -> PyResult<usize> {
        let now = now(mono_ms, wall_ms);
        self.0
            .seek_queue(stream, group, &offsets, request, now)
            .map_err(error)
    }

    fn forget_queue_group(&mut self, stream: u64, group: &str) -> PyResult<bool> {
        self.0.forget_queue_group(stream, group).map_err(error)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of what is asked")]
    fn pull_queue(
        &mut self,
        stream: u64,
        group: &str,
        topic_filter: Option<&str>,
        messages_max: usize,
        bytes_max: usize,
        deadline_ms: Option<u64>,
        waits: bool,
    ) -> PyResult<Option<u64>> {
        let terms = core::PullTerms {
            messages_max,
            bytes_max,
            deadline_ms,
            waits,
        };
        match self.0.pull_queue(stream, (group, topic_filter), terms) {
            Ok(number) => Ok(Some(number)),
            Err(core::Error::GroupLimit) => Ok(None),
            Err(other) => Err(error(other)),
        }
    }

    fn end_pull(&mut self, number: u64) {
        self.0.end_pull(number);
    }

    fn pulled(&mut self, py: Python<'_>) -> Vec<(u64, Vec<QueueMessage>)> {
        let pulled = self.0.pulled().into_iter();
        let pulled = pulled.map(|core::Pulled { number, messages }| {
            let messages = messages.iter();
            let messages = messages.map(|message| QueueMessage::pulled(py, message));
            (number, messages.collect())
        });
        pulled.collect()
    }

    fn return_pull(&mut self, stream: u64, group: &str, topic_filter: Option<&str>, number: u64) {
        self.0.return_pull(stream, (group, topic_filter), number);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a settlement")]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts owned lists")]
    fn settle_queue(
        &mut self,
        stream: u64,
        group: &str,
        topic_filter: Option<&str>,
        verb: &str,
        message_ids: Vec<String>,
        delay: Option<&str>,
        reason: Option<&str>,
        request: u64,
        mono_ms: u64,
        wall_ms: i64,
    ) -> PyResult<Option<Vec<&'static str>>> {
        let (what, why) = ((verb, &*message_ids), (delay, reason));
        let now = now(mono_ms, wall_ms);
        let group = (group, topic_filter);
        let ends = self.0.settle_queue(stream, group, what, why, request, now);
        let ends = ends.map_err(error)?;
        Ok(ends.map(|ends| ends.into_iter().map(end_of).collect()))
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of what is asked")]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts owned pairs")]
    fn peek_queue(
        &mut self,
        py: Python<'_>,
        stream: u64,
        partition: u32,
        piece: &StreamPiece,
        group: Option<(String, Option<String>)>,
        offset: i64,
        count_max: usize,
        has_settled: bool,
        mono_ms: u64,
        wall_ms: i64,
    ) -> PyResult<(Vec<QueueMessage>, i64)> {
        let group = group.as_ref();
        let terms = core::PeekTerms {
            group: group.map(|(name, filter)| (&**name, filter.as_deref())),
            offset,
            count_max,
            has_settled,
        };
        let now = now(mono_ms, wall_ms);
        let found = self
            .0
            .peek_queue(stream, partition, &piece.batches, terms, now);
        let (found, next) = found.map_err(error)?;
        let found = found.iter();
        let found = found.map(|message| QueueMessage::peeked(py, partition, message));
        Ok((found.collect(), next))
    }

    fn next_read(&mut self, mono_ms: u64, wall_ms: i64) -> Option<(u64, u64, u32, i64, usize)> {
        self.0.next_read(now(mono_ms, wall_ms)).map(read_of)
    }

    fn fed(&mut self, ticket: u64, piece: &StreamPiece, mono_ms: u64, wall_ms: i64) {
        let batches = Arc::clone(&piece.batches);
        let now = now(mono_ms, wall_ms);
        self.0.fed(ticket, batches, &piece.left_out, now);
    }

    fn missed(&mut self, ticket: u64, start: i64, end: i64) {
        self.0.missed(ticket, start, end);
    }

    fn unread(&mut self, ticket: u64, mono_ms: u64, wall_ms: i64) {
        self.0.unread(ticket, now(mono_ms, wall_ms));
    }

    #[pyo3(signature = (ticket, reason_code, mono_ms, wall_ms))]
    fn durable(
        &mut self,
        ticket: u64,
        reason_code: u8,
        mono_ms: u64,
        wall_ms: i64,
    ) -> PyResult<()> {
        let ending = match reason_code {
            0 => Ending::Stored,
            reason::QUOTA_EXCEEDED => Ending::NoRoom,
            _ => Ending::Refused,
        };
        let now = now(mono_ms, wall_ms);
        self.0.durable(ticket, ending, now).map_err(error)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a publish")]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts owned lists")]
    fn publish(
        &mut self,
        topic: &str,
        payload: &[u8],
        qos: u8,
        retain: bool,
        properties: Vec<(String, String)>,
        request: u64,
        mono_ms: u64,
        wall_ms: i64,
    ) -> PyResult<()> {
        let publish = publish_of(topic, payload, qos, retain, &properties)?;
        let now = now(mono_ms, wall_ms);
        self.0.publish(&publish, request, now).map_err(error)
    }

    fn announce(
        &mut self,
        topic: &str,
        payload: &[u8],
        mono_ms: u64,
        wall_ms: i64,
    ) -> PyResult<()> {
        let now = now(mono_ms, wall_ms);
        self.0.announce(topic, payload, now).map_err(error)
    }

    fn published(&mut self) -> Vec<(u64, u8, u32)> {
        self.0
            .published()
            .into_iter()
            .map(|published| (published.request, published.reason_code, published.streams))
            .collect()
    }

    #[expect(clippy::too_many_arguments, reason = "the question and the time")]
    fn retained(
        &self,
        py: Python<'_>,
        topic_filter: &str,
        start: &str,
        count_max: usize,
        payload_bytes_max: usize,
        mono_ms: u64,
        wall_ms: i64,
    ) -> PyResult<Messages> {
        let now = now(mono_ms, wall_ms);
        let page = self.0.retained(topic_filter, start, count_max, now);
        Ok(messages_of(py, page.map_err(error)?, payload_bytes_max))
    }

    fn count_retained(&self, topic_filter: &str, start: &str) -> PyResult<(usize, Option<String>)> {
        let page = self.0.count_retained(topic_filter, start).map_err(error)?;
        Ok((page.found, page.next))
    }

    fn delete_retained(
        &mut self,
        topic_filter: &str,
        start: &str,
        request: u64,
        mono_ms: u64,
        wall_ms: i64,
    ) -> PyResult<(usize, Option<String>)> {
        let now = now(mono_ms, wall_ms);
        let page = self.0.delete_retained(topic_filter, start, request, now);
        let page = page.map_err(error)?;
        Ok((page.found, page.next))
    }

    fn list_sessions(
        &self,
        pattern: &str,
        connected: Option<bool>,
        start: usize,
        count_max: usize,
        mono_ms: u64,
        wall_ms: i64,
    ) -> (Vec<SessionSummary>, Option<usize>) {
        let wanted = core::Wanted { pattern, connected };
        let now = now(mono_ms, wall_ms);
        let (found, next) = self.0.list_sessions(wanted, start, count_max, now);
        (found.into_iter().map(SessionSummary::from).collect(), next)
    }

    fn session(&self, client_id: &str, mono_ms: u64, wall_ms: i64) -> Option<SessionReport> {
        let report = self.0.session(client_id, now(mono_ms, wall_ms));
        report.map(SessionReport::from)
    }

    fn disconnect_client(
        &mut self,
        client_id: &str,
        request: u64,
        mono_ms: u64,
        wall_ms: i64,
    ) -> Option<bool> {
        let now = now(mono_ms, wall_ms);
        self.0.disconnect_client(client_id, request, now)
    }

    fn delete_session(
        &mut self,
        client_id: &str,
        request: u64,
        mono_ms: u64,
        wall_ms: i64,
    ) -> bool {
        let now = now(mono_ms, wall_ms);
        self.0.delete_session(client_id, request, now)
    }

    #[pyo3(signature = (client_id, topic_filter, payload_bytes_max))]
    fn start_trace(
        &mut self,
        client_id: Option<String>,
        topic_filter: Option<String>,
        payload_bytes_max: usize,
    ) -> PyResult<Option<u64>> {
        let subject = subject_of(client_id, topic_filter)?;
        self.0
            .start_trace(subject, payload_bytes_max)
            .map_err(error)
    }

    fn take_trace(&mut self, py: Python<'_>, trace: u64) -> PyResult<(Vec<TraceLine>, u64)> {
        let (lines, lost) = self.0.take_trace(trace).map_err(error)?;
        let lines = lines.into_iter().map(|line| TraceLine::of(py, line));
        Ok((lines.collect(), lost))
    }

    fn stop_trace(&mut self, trace: u64) {
        self.0.stop_trace(trace);
    }

    fn keep_retained(&mut self, stream: u64) -> PyResult<()> {
        self.0.keep_retained(stream).map_err(error)
    }

    fn restore_retained(
        &mut self,
        py: Python<'_>,
        batches: &[u8],
        mono_ms: u64,
        wall_ms: i64,
    ) -> PyResult<(usize, usize, i64)> {
        let restored = self.0.restore_retained(batches, now(mono_ms, wall_ms));
        let restored = restored.map_err(|error| record_error(py, &error))?;
        let core::Restored {
            records,
            ignored,
            next_offset,
        } = restored;
        Ok((records, ignored, next_offset))
    }

    #[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts owned lists")]
    fn retained_state<'py>(
        &self,
        py: Python<'py>,
        partitions: Vec<u32>,
        start: &str,
        names: usize,
        mono_ms: u64,
        wall_ms: i64,
    ) -> State<'py> {
        let now = now(mono_ms, wall_ms);
        let state = self.0.retained_state(&partitions, start, names, now);
        state_of(py, state)
    }

    fn disconnect_all(&mut self, reason_code: u8, mono_ms: u64, wall_ms: i64) {
        self.0.disconnect_all(reason_code, now(mono_ms, wall_ms));
    }

    fn tick(&mut self, mono_ms: u64, wall_ms: i64) {
        self.0.tick(now(mono_ms, wall_ms));
    }

    fn keep_sessions(&mut self, partitions: u32, checkpoint_bytes_min: u64) {
        self.0
            .keep_sessions(partitions, checkpoint_bytes_min, core::BATCH_BYTES_MAX);
    }

    fn restore(&mut self, partition: u32, batches: &[u8]) -> PyResult<i64> {
        self.0.restore(partition, batches).map_err(error)
    }

    fn restored(&mut self, mono_ms: u64, wall_ms: i64) {
        self.0.restored(now(mono_ms, wall_ms));
    }

    fn persist(&mut self, mono_ms: u64, wall_ms: i64) -> Option<(u32, i64)> {
        let trim = self.0.persist(now(mono_ms, wall_ms))?;
        Some((trim.partition, trim.offset))
    }

    fn session_append<'py>(
        &mut self,
        py: Python<'py>,
    ) -> Option<(u32, Bound<'py, PyBytes>, u64, bool)> {
        let append = self.0.session_append()?;
        let batch = PyBytes::new(py, &append.batch);
        Some((append.partition, batch, append.ticket, append.begins))
    }

    fn session_appended(&mut self, ticket: u64, offset: i64) {
        self.0.session_appended(ticket, offset);
    }

    fn collect(&mut self, py: Python<'_>, mono_ms: u64, wall_ms: i64) -> PyResult<Option<Effects>> {
        let effects = self.0.collect(now(mono_ms, wall_ms));
        effects.map(|effects| convert(py, effects)).transpose()
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = PyDict::new(py);
        for (name, value) in self.0.statistics() {
            statistics.set_item(name, value)?;
        }
        Ok(statistics)
    }
}

const fn now(mono_ms: u64, wall_ms: i64) -> Now {
    Now { mono_ms, wall_ms }
}

#[expect(clippy::needless_pass_by_value, reason = "it ends a map_err")]
fn error(error: core::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ConnectRequest>()?;
    module.add_class::<Effects>()?;
    module.add_class::<QueueGroup>()?;
    module.add_class::<QueueMessage>()?;
    module.add_class::<RetainedMessage>()?;
    module.add_class::<StreamRequest>()?;
    module.add_class::<Switchboard>()
}
