//! Payloads of GPU telemetry to readings, each judged from its text.
//!
//! Owns the forms of a message, where host, GPU, MIG slice and Kubernetes context are found in it,
//! and the first fault of a reading. Nothing is corrected or clamped. A message always gives at
//! least one row: one that holds no reading gives a row with the reason `undecodable` and the whole
//! message, so that it can be counted.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::hash::{Key, Map};

use super::arrow::{Bytes, Column, Numbers};
use super::instant::{instant, of_an_event};
use super::json::{self, Pairs};
use super::number::{self, Number};
use super::text::{filled, is_digits, readable, Text};
use super::{csv, prometheus};

/// Bytes that the readings of one message may take together. A wide message repeats its labels in
/// each of its readings: a hostile one of 1 MiB would make tens of gigabytes.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// About what a row takes beside its texts.
const ROW_BYTES: usize = 256;

/// Bytes after which a call ends, at the end of a message: far below the i32 offsets of Arrow.
const BATCH_BYTES_MAX: usize = 128 << 20;

/// What is known of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Canonical name.
    pub name: String,
    /// Number in DCGM; None for what only an exporter computes.
    pub id: Option<i32>,
    /// Unit of the value.
    pub unit: String,
    /// Whether it only grows, and is kept exactly.
    pub counter: bool,
    /// Whether DCGM holds it as INT64.
    pub integer: bool,
    /// Least value that is a measurement.
    pub low: f64,
    /// Greatest value that is a measurement.
    pub high: f64,
}

/// A stored message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Message<'a> {
    /// Its offset.
    pub offset: i64,
    /// When the broker stored it, microseconds since 1970.
    pub stored_us: i64,
    /// Its payload; None for a tombstone.
    pub value: Option<&'a [u8]>,
    /// Header `source`.
    pub source: Option<&'a [u8]>,
    /// Header `epoch`.
    pub epoch: Option<&'a [u8]>,
    /// Header `sequence`.
    pub sequence: Option<&'a [u8]>,
}

macro_rules! columns {
    ($($(#[doc = $meaning:literal])* $name:ident: $kind:ty,)*) => {
        /// Readings, column by column.
        #[derive(Clone, Debug, Default)]
        pub struct ReadingColumns {
            rows: usize,
            bytes: usize,
            label_ends: Vec<u8>,
            label_names: Bytes,
            label_values: Bytes,
            $($name: $kind,)*
        }

        impl ReadingColumns {
            /// Names and columns, but for the labels.
            pub fn finish(self) -> (Vec<(&'static str, Column)>, [Column; 3]) {
                let mut starts = vec![0; 4];
                starts.extend(self.label_ends);
                let lists = Column { validity: None, buffers: vec![starts] };
                (
                    vec![$((stringify!($name), self.$name.finish()),)*],
                    [lists, self.label_names.finish(), self.label_values.finish()],
                )
            }
        }
    };
}

columns! {
    offset: Numbers<8>,
    item: Numbers<4>,
    event_time: Numbers<8>,
    ingest_time: Numbers<8>,
    host: Bytes,
    device: Bytes,
    gpu_index: Numbers<4>,
    uuid: Bytes,
    gpu_i_id: Bytes,
    gpu_i_profile: Bytes,
    metric: Bytes,
    field_id: Numbers<4>,
    raw: Bytes,
    value: Numbers<8>,
    value_long: Numbers<8>,
    unit: Bytes,
    status: Bytes,
    reason: Bytes,
    newest_time: Numbers<8>,
    model: Bytes,
    driver: Bytes,
    namespace: Bytes,
    pod: Bytes,
    container: Bytes,
    source: Bytes,
    source_epoch: Numbers<8>,
    source_sequence: Numbers<8>,
    event_time_text: Bytes,
    payload: Bytes,
}

impl ReadingColumns {
    /// How many readings there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn push_subject(&mut self, subject: &Subject) {
        self.host.push_text(subject.host());
        self.device.push_text(subject.device());
        self.gpu_index.push(subject.index().map(i32::to_le_bytes));
        self.uuid.push_text(subject.uuid());
        let slice = |name| Some(subject.label(&[name]).unwrap_or_default());
        self.gpu_i_id.push_text(slice("GPU_I_ID"));
        self.gpu_i_profile.push_text(slice("GPU_I_PROFILE"));
        self.model.push_text(subject.model());
        self.driver
            .push_text(subject.label(&["driver_version", "DCGM_FI_DRIVER_VERSION"]));
        let namespace = ["exported_namespace", "namespace", "pod_namespace"];
        self.namespace
            .push_text(Some(subject.context(&subject.namespace, &namespace)));
        let pod = ["exported_pod", "pod", "pod_name"];
        self.pod
            .push_text(Some(subject.context(&subject.pod, &pod)));
        let container = ["exported_container", "container", "container_name"];
        self.container
            .push_text(Some(subject.context(&subject.container, &container)));
        self.event_time_text
            .push_text(filled(subject.event_time.as_deref()));
        for (name, value) in subject.labels.iter() {
            self.label_names.push_text(Some(name));
            self.label_values.push_text(value);
        }
        let end = self.label_names.rows() as i32;
        self.label_ends.extend_from_slice(&end.to_le_bytes());
        self.bytes += subject.bytes() + ROW_BYTES;
    }

    fn push_source(&mut self, message: &Message) {
        self.offset.push(Some(message.offset.to_le_bytes()));
        self.source
            .push_text(message.source.map(readable).as_deref());
        self.source_epoch.push(counter(message.epoch));
        self.source_sequence.push(counter(message.sequence));
    }

    /// Whether there is enough for one batch.
    pub fn is_full(&self, rows_max: usize) -> bool {
        self.rows >= rows_max || self.bytes >= BATCH_BYTES_MAX
    }
}

/// Reads the messages of one partition, in their order.
#[derive(Debug)]
pub struct Readings {
    fields: Vec<Field>,
    by_name: Map<String, usize>,
    future_us: Option<i64>,
    newest_us: Option<i64>,
}

impl Readings {
    /// For `fields` under `names`, each a name and the index of its field; aliases are names too.
    ///
    /// An event time more than `future_us` after its collection is in the future; None: no time is.
    /// Where one can be, no event time counts as newer than the storage of its message.
    /// `newest_us` is the newest event time of a usable reading before the first message.
    ///
    /// # Panics
    /// Where a name has no field.
    pub fn new(
        key: Key,
        fields: Vec<Field>,
        names: impl IntoIterator<Item = (String, usize)>,
        future_us: Option<i64>,
        newest_us: Option<i64>,
    ) -> Self {
        let mut by_name = Map::with_hasher(key);
        for (name, at) in names {
            assert!(at < fields.len(), "{name} has no field");
            by_name.insert(name, at);
        }
        Self {
            fields,
            by_name,
            future_us,
            newest_us,
        }
    }

    /// Adds the readings of `message` to `columns`.
    pub fn read(&mut self, message: &Message, columns: &mut ReadingColumns) {
        let text = message.value.map(readable);
        let first_row = columns.rows;
        let mut items = Items {
            readings: self,
            message,
            columns,
            first_row,
        };
        match text.as_deref().map(str::trim_start) {
            Some(text) if text.starts_with('{') => items.json(text),
            Some(text) if prometheus::is_exposition(text) => items.exposition(text),
            Some(text) => items.lines(text),
            None => {}
        }
        if items.columns.rows == first_row {
            items.undecodable(message.value);
        }
    }
}

/// Who and when of one or more readings.
#[derive(Default)]
struct Subject<'a> {
    event_time: Text<'a>,
    ingest_time: Text<'a>,
    uuid: Text<'a>,
    gpu: Text<'a>,
    device: Text<'a>,
    host: Text<'a>,
    model: Text<'a>,
    namespace: Text<'a>,
    pod: Text<'a>,
    container: Text<'a>,
    labels: Pairs<'a>,
}

impl Subject<'_> {
    /// The first label of `names` that holds something.
    fn label(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| filled(self.labels.get(name)))
    }

    fn bytes(&self) -> usize {
        let own = [
            &self.event_time,
            &self.ingest_time,
            &self.uuid,
            &self.gpu,
            &self.device,
            &self.host,
            &self.model,
            &self.namespace,
            &self.pod,
            &self.container,
        ];
        let own: usize = own
            .iter()
            .filter_map(|text| text.as_ref())
            .map(|text| text.len())
            .sum();
        own + 2 * self.labels.bytes()
    }

    /// `gpu_id`, unless it is only an index on its host, as exporters have it.
    fn uuid(&self) -> Option<&str> {
        let own = filled(self.uuid.as_deref());
        let named = self.gpu.as_deref().filter(|gpu| !is_digits(gpu.trim()));
        own.or(filled(named))
            .or_else(|| self.label(&["UUID", "uuid", "gpu_uuid"]))
    }

    fn index(&self) -> Option<i32> {
        let gpu = self.gpu.as_deref().map(str::trim);
        let of_device = self
            .device
            .as_deref()
            .and_then(|device| device.strip_prefix("nvidia"));
        let short = |text: &&str| is_digits(text) && text.len() <= 4;
        self.label(&["gpu"])
            .or(gpu.filter(short))
            .or(of_device.filter(short))
            .and_then(|index| index.parse().ok())
    }

    fn host(&self) -> Option<&str> {
        filled(self.host.as_deref()).or_else(|| self.label(&["hostname", "Hostname"]))
    }

    fn device(&self) -> Option<&str> {
        filled(self.device.as_deref()).or_else(|| self.label(&["device"]))
    }

    fn model(&self) -> Option<&str> {
        filled(self.model.as_deref()).or_else(|| self.label(&["model_name", "modelName"]))
    }

    /// Kubernetes context. Prometheus renames the exporter's label to `exported_…` where its own
    /// target has one of that name, so the renamed one is the GPU's.
    fn context<'s>(&'s self, own: &'s Text, names: &[&str]) -> &'s str {
        filled(own.as_deref())
            .or_else(|| self.label(names))
            .unwrap_or_default()
    }
}

/// Adds the readings of one message.
struct Items<'r, 'm, 'c> {
    readings: &'r mut Readings,
    message: &'m Message<'m>,
    columns: &'c mut ReadingColumns,
    first_row: usize,
}

impl Items<'_, '_, '_> {
    fn json(&mut self, text: &str) {
        json::read(text, |members| self.object(members));
    }

    fn object(&mut self, members: Vec<(Cow<'_, str>, &RawValue)>) {
        let mut subject = Subject::default();
        let (mut timestamp, mut metric, mut value, mut raw) = (None, None, None, None);
        let mut metrics = None;
        for (name, member) in members {
            match name.as_ref() {
                "timestamp" => timestamp = json::text_of(member),
                "event_time" => subject.event_time = json::text_of(member),
                "ingest_time" => subject.ingest_time = json::text_of(member),
                "metric_name" => metric = json::text_of(member),
                "gpu_id" => subject.gpu = json::text_of(member),
                "device" => subject.device = json::text_of(member),
                "hostname" => subject.host = json::text_of(member),
                "namespace" => subject.namespace = json::text_of(member),
                "pod" => subject.pod = json::text_of(member),
                "container" => subject.container = json::text_of(member),
                "value" => value = json::text_of(member),
                "raw" => raw = json::text_of(member),
                "labels" => subject.labels = json::pairs_of(member).unwrap_or_default(),
                "metrics" => metrics = json::pairs_of(member),
                _ => {}
            }
        }
        if filled(subject.event_time.as_deref()).is_none() {
            subject.event_time = timestamp;
        }
        match metrics {
            Some(metrics) if metrics.len() > 0 => {
                if metrics.len() * (subject.bytes() + ROW_BYTES) > MESSAGE_BYTES_MAX {
                    return;
                }
                let mut whole = self.message.value;
                for (metric, raw) in metrics.iter() {
                    self.push(&subject, Some(metric), raw, whole);
                    // Once is enough, however many names are empty.
                    if filled(Some(metric)).is_none() {
                        whole = None;
                    }
                }
            }
            _ => {
                let raw = raw.or(value);
                self.push(
                    &subject,
                    metric.as_deref(),
                    raw.as_deref(),
                    self.message.value,
                );
            }
        }
    }

    fn exposition(&mut self, text: &str) {
        let stored = self.message.stored_us.to_string();
        for (line, sample) in prometheus::samples(text) {
            let Some(sample) = sample else {
                self.undecodable(Some(line.as_bytes()));
                continue;
            };
            let subject = Subject {
                event_time: Some(sample.time_ms.unwrap_or(&stored).into()),
                labels: sample.labels,
                ..Subject::default()
            };
            self.push(&subject, Some(sample.name), Some(sample.value), None);
        }
    }

    fn lines(&mut self, text: &str) {
        csv::lines(text, |line| {
            let is_message = line.text == text.trim_matches(['\r', '\n']);
            let bytes = Some(line.text.as_bytes());
            let payload = if is_message {
                self.message.value
            } else {
                bytes
            };
            if !line.is_whole() {
                return self.undecodable(payload);
            }
            let of = |name| line.get(name).map(Cow::from);
            let raw = line.get("labels_raw").unwrap_or_default();
            let subject = Subject {
                event_time: of("timestamp"),
                uuid: of("uuid"),
                gpu: of("gpu_id"),
                device: of("device"),
                host: of("Hostname"),
                model: of("modelName"),
                namespace: of("namespace"),
                pod: of("pod"),
                container: of("container"),
                labels: prometheus::labels(raw),
                ..Subject::default()
            };
            self.push(
                &subject,
                line.get("metric_name"),
                line.get("value"),
                payload,
            );
        });
    }

    /// A row for what holds no reading.
    fn undecodable(&mut self, payload: Option<&[u8]>) {
        self.row(&Subject::default(), None, None, payload);
    }

    /// A reading; `payload` is kept where it has no name.
    fn push(
        &mut self,
        subject: &Subject,
        metric: Option<&str>,
        raw: Option<&str>,
        payload: Option<&[u8]>,
    ) {
        let metric = filled(metric);
        self.row(subject, metric, raw, payload.filter(|_| metric.is_none()));
    }

    fn row(
        &mut self,
        subject: &Subject,
        metric: Option<&str>,
        raw: Option<&str>,
        payload: Option<&[u8]>,
    ) {
        let item = self.columns.rows - self.first_row;
        let (readings, message) = (&mut *self.readings, self.message);
        let at = metric.and_then(|name| readings.by_name.get(name));
        let field = at.map(|at| &readings.fields[*at]);
        let text = raw.map(|raw| raw.trim_matches(' '));
        let number = text.and_then(Number::read);
        let told_us = subject.event_time.as_deref().and_then(instant);
        let event_us = told_us.and_then(of_an_event);
        let ingest_us = subject.ingest_time.as_deref().and_then(instant);
        let ingest_us = ingest_us.and_then(of_an_event).unwrap_or(message.stored_us);
        let is_future = |event_us: i64| {
            readings
                .future_us
                .is_some_and(|future_us| event_us > ingest_us.saturating_add(future_us))
        };
        let reason = if metric.is_none() {
            Some("undecodable")
        } else if subject.uuid().is_none() {
            Some("no_identity")
        } else if told_us.is_some_and(is_future) {
            Some("future")
        } else if event_us.is_none() {
            Some("ambiguous_time")
        } else {
            fault(text.unwrap_or_default(), number.as_ref(), field)
        };
        let usable = number.filter(|_| reason.is_none());
        let whole = usable.filter(|_| field.is_some_and(|field| field.counter));
        let status = if field.is_none() {
            "unknown_field"
        } else {
            "ok"
        };

        let columns = &mut *self.columns;
        columns.item.push(Some((item as i32).to_le_bytes()));
        columns.event_time.push(event_us.map(i64::to_le_bytes));
        columns.ingest_time.push(Some(ingest_us.to_le_bytes()));
        columns
            .metric
            .push_text(field.map(|field| field.name.as_str()).or(metric));
        columns
            .field_id
            .push(field.and_then(|field| field.id).map(i32::to_le_bytes));
        columns.raw.push_text(raw);
        columns
            .value
            .push(usable.map(|number| number.value.to_le_bytes()));
        columns.value_long.push(
            whole
                .and_then(|number| number.whole())
                .map(i64::to_le_bytes),
        );
        columns
            .unit
            .push_text(Some(field.map_or("", |field| &field.unit)));
        columns.status.push_text(Some(status));
        columns.reason.push_text(reason);
        // Quarantined event times move no clock: one that is wrong would make all that follow late.
        // Nor does a collector whose own clock is ahead, too: nothing live is stored before it is.
        if reason.is_none() {
            let bound_us = readings.future_us.map_or(i64::MAX, |_| message.stored_us);
            let reached_us = event_us.map(|event_us| event_us.min(bound_us));
            readings.newest_us = readings.newest_us.max(reached_us);
        }
        columns
            .newest_time
            .push(readings.newest_us.map(i64::to_le_bytes));
        columns.payload.push(payload);
        columns.bytes += raw.map_or(0, str::len) + payload.map_or(0, <[u8]>::len);
        columns.push_subject(subject);
        columns.push_source(message);
        columns.rows += 1;
    }
}

/// A header that counts something.
fn counter(header: Option<&[u8]>) -> Option<[u8; 8]> {
    let text = std::str::from_utf8(header?).ok()?;
    text.parse::<i64>().ok().map(i64::to_le_bytes)
}

/// The fault of a value; None where it is usable.
fn fault(text: &str, number: Option<&Number>, field: Option<&Field>) -> Option<&'static str> {
    if text.is_empty() {
        return Some("missing");
    }
    if number::is_not_a_number(text) {
        return Some("not_a_number");
    }
    let integer = field.is_some_and(|field| field.integer);
    let mark = number::mark(text, number, field.map(|field| field.high), integer);
    if mark.is_some() {
        return mark;
    }
    let Some(number) = number else {
        return Some("unparseable");
    };
    let measured =
        field.is_none_or(|field| number.value >= field.low && number.value <= field.high);
    (!measured || number.value.is_infinite()).then_some("out_of_range")
}
