//! A batch with its records compressed another way.

use super::codec::compress;
use super::header::seal;
use super::{Batch, BatchHeader, Batches, Codec, Error, Records, HEADER_BYTES};

/// The batches of `data`, their records compressed by `codec`, their headers with the greatest
/// timestamp of those. All else of them stays: offsets, producer, flags, counts, and the records
/// byte for byte. `bytes_max` bounds what one may decompress to.
pub fn recode(data: &[u8], codec: Codec, bytes_max: usize) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(data.len());
    let mut scratch = Vec::new();
    for batch in Batches::new(data) {
        let batch = batch?;
        batch.check_crc()?; // a new one would vouch for what the old one does not
        let records = batch.open(&mut scratch, bytes_max)?;
        let max_timestamp = newest(&batch, records)?;
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        if batch.header.codec() == Ok(codec) {
            out.extend_from_slice(batch.body());
        } else {
            compress(codec, records, &mut out);
        }
        let recoded = &mut out[start..];
        let header = BatchHeader {
            length: batch.header.length + (recoded.len() as i32 - batch.bytes.len() as i32),
            attributes: batch.header.attributes & !0x07 | codec as i16,
            max_timestamp,
            ..batch.header
        };
        header.write(recoded);
        seal(recoded);
    }
    Ok(out)
}

/// The greatest timestamp of a batch's records; what its header says where it has none.
fn newest(batch: &Batch, records: &[u8]) -> Result<i64, Error> {
    let mut newest = None;
    for record in Records::new(&batch.header, records) {
        let record = record.map_err(|fault| batch.wrong(fault))?;
        newest = newest.max(Some(record.timestamp));
    }
    Ok(newest.unwrap_or(batch.header.max_timestamp))
}
