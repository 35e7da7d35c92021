//! A batch with its records compressed another way.

use super::codec::compress;
use super::header::seal;
use super::{BatchHeader, Batches, Codec, Error, HEADER_BYTES};

/// The batches of `data`, their records compressed by `codec`. All else of them stays: offsets,
/// timestamps, producer, flags, counts, and the records byte for byte. A batch of that codec stays
/// as it is. `bytes_max` bounds what one may decompress to.
pub fn recode(data: &[u8], codec: Codec, bytes_max: usize) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(data.len());
    let mut scratch = Vec::new();
    for batch in Batches::new(data) {
        let batch = batch?;
        batch.check_crc()?; // a new one would vouch for what the old one does not
        let records = batch.open(&mut scratch, bytes_max)?;
        if batch.header.codec() == Ok(codec) {
            out.extend_from_slice(batch.bytes);
            continue;
        }
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        compress(codec, records, &mut out);
        let recoded = &mut out[start..];
        let header = BatchHeader {
            length: batch.header.length + (recoded.len() as i32 - batch.bytes.len() as i32),
            attributes: batch.header.attributes & !0x07 | codec as i16,
            ..batch.header
        };
        header.write(recoded);
        seal(recoded);
    }
    Ok(out)
}
