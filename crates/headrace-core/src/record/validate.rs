//! Whether a run of batches may enter a log.

use super::{Batch, Batches, Error, Fault, Records};

/// What a run of validated batches holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a finding of its own"
)]
pub struct Summary {
    /// Number of batches.
    pub batches: u32,
    /// Number of records in all of them.
    pub records: u64,
    /// Milliseconds; the greatest timestamp, or -1 without a batch.
    pub max_timestamp: i64,
    /// A batch holds control records; a client must not send such.
    pub control: bool,
    /// A batch belongs to a transaction.
    pub transactional: bool,
    /// A batch has the times of its append, which only a broker gives.
    pub log_append_time: bool,
    /// A batch has been compacted, which only a broker does.
    pub delete_horizon: bool,
    /// A record that was checked has no key.
    pub keyless: bool,
    /// A header does not tell the greatest timestamp of the records that were checked.
    pub misdated: bool,
    /// Of the largest record that was checked, decompressed.
    pub record_bytes: usize,
    /// Of the record that was checked and has the most.
    pub record_headers: usize,
}

/// Whether compressed batches are opened, so that their records are checked too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressed {
    /// Their header and CRC are checked; the records pass as they are.
    Closed,
    /// Their records are checked like others.
    Opened {
        /// Bytes to which one batch may decompress.
        bytes_max: usize,
    },
}

/// Checks each batch of `data`: length, magic, CRC-32C, attributes, a count of records that is
/// positive and fits the last offset delta, a producer's sequence, and the records themselves, offsets included.
///
/// No data at all is valid and holds no batch.
pub fn validate(data: &[u8], compressed: Compressed) -> Result<Summary, Error> {
    let mut scratch = Vec::new();
    let mut summary = Summary {
        batches: 0,
        records: 0,
        max_timestamp: -1,
        control: false,
        transactional: false,
        log_append_time: false,
        delete_horizon: false,
        keyless: false,
        misdated: false,
        record_bytes: 0,
        record_headers: 0,
    };
    for batch in Batches::new(data) {
        let batch = batch?;
        let found = check(&batch, compressed, &mut scratch)?;
        summary.keyless |= found.keyless;
        summary.misdated |= found.misdated;
        summary.record_bytes = summary.record_bytes.max(found.record_bytes);
        summary.record_headers = summary.record_headers.max(found.record_headers);
        let header = &batch.header;
        summary.batches += 1;
        summary.records += header.count as u64;
        summary.max_timestamp = summary.max_timestamp.max(header.max_timestamp);
        summary.control |= header.is_control();
        summary.transactional |= header.is_transactional();
        summary.log_append_time |= header.is_log_append_time();
        summary.delete_horizon |= header.has_delete_horizon();
    }
    Ok(summary)
}

/// What the records of a batch say.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    keyless: bool,
    misdated: bool,
    record_bytes: usize,
    record_headers: usize,
}

fn check(batch: &Batch, compressed: Compressed, scratch: &mut Vec<u8>) -> Result<Found, Error> {
    batch.check_crc()?;
    let header = &batch.header;
    header
        .check_attributes()
        .map_err(|fault| batch.wrong(fault))?;
    let (count, last_offset_delta) = (header.count, header.last_offset_delta);
    if count < 1 || last_offset_delta != count - 1 {
        return Err(batch.wrong(Fault::Count {
            count,
            last_offset_delta,
        }));
    }
    let (epoch, sequence) = (header.producer_epoch, header.base_sequence);
    if header.has_producer() && (epoch < 0 || sequence < 0) {
        return Err(batch.wrong(Fault::Producer {
            producer_id: header.producer_id,
            epoch,
            sequence,
        }));
    }
    let bytes_max = match compressed {
        Compressed::Opened { bytes_max } => bytes_max,
        Compressed::Closed if batch.is_compressed() => return Ok(Found::default()),
        Compressed::Closed => 0,
    };
    let body = batch.open(scratch, bytes_max)?;
    check_records(batch, body).map_err(|fault| batch.wrong(fault))
}

fn check_records(batch: &Batch, body: &[u8]) -> Result<Found, Fault> {
    let base_offset = batch.header.base_offset;
    let mut found = Found::default();
    let mut newest = i64::MIN;
    let mut records = Records::new(&batch.header, body);
    let mut bytes_left = records.bytes_left();
    let mut index = 0;
    while let Some(record) = records.next() {
        let record = record?;
        let before = std::mem::replace(&mut bytes_left, records.bytes_left());
        found.record_bytes = found.record_bytes.max(before - bytes_left);
        found.record_headers = found.record_headers.max(record.headers.len());
        found.keyless |= record.key.is_none();
        newest = newest.max(record.timestamp);
        if record.offset != base_offset.wrapping_add(i64::from(index)) {
            let part = "offset";
            return Err(Fault::Record { index, part });
        }
        index += 1;
    }
    found.misdated = newest != batch.header.max_timestamp;
    Ok(found)
}
