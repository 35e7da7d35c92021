//! Values that tell which append made them, and that nothing was changed on the way.

/// Bytes of the smallest payload: a number and a CRC of all of it.
const HEADER_BYTES: usize = 12;

/// A payload of at least `bytes` bytes that carries `value`.
pub fn payload(value: u64, bytes: usize) -> Vec<u8> {
    let mut payload = Vec::with_capacity(bytes.max(HEADER_BYTES));
    payload.extend_from_slice(&[0; 4]);
    payload.extend_from_slice(&value.to_be_bytes());
    payload.resize(bytes.max(HEADER_BYTES), (value % 251) as u8);
    let crc = crc32c::crc32c(&payload[4..]);
    payload[..4].copy_from_slice(&crc.to_be_bytes());
    payload
}

/// The value that `payload` carries; None where it is none of [`payload`]'s, or was changed.
pub fn value_of(payload: &[u8]) -> Option<u64> {
    let (crc, rest) = payload.split_first_chunk()?;
    let value = rest.first_chunk()?;
    (u32::from_be_bytes(*crc) == crc32c::crc32c(rest)).then_some(u64::from_be_bytes(*value))
}
