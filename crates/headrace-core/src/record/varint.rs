//! Zigzag varints, as Protocol Buffers write sint32 and sint64.

/// Appends `value`.
#[inline]
pub(super) fn put(out: &mut Vec<u8>, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Fills `place`, which is [`size`] bytes long, with `value`.
#[inline]
pub(super) fn write(place: &mut [u8], value: i64) {
    let mut rest = zigzag(value);
    let (last, others) = place.split_last_mut().expect("a varint has a byte");
    for byte in others {
        *byte = rest as u8 | 0x80;
        rest >>= 7;
    }
    *last = rest as u8;
}

/// Bytes that [`put`] appends.
#[inline]
pub(super) fn size(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Takes a varint that fits an `i64` off the front of `data`.
#[inline]
pub(super) fn take(data: &mut &[u8]) -> Option<i64> {
    let (&first, rest) = data.split_first()?;
    if first < 0x80 {
        *data = rest;
        return Some(unzigzag(u64::from(first)));
    }
    take_long(data)
}

/// Takes a varint that fits an `i32`; lengths and counts are such.
#[inline]
pub(super) fn take_i32(data: &mut &[u8]) -> Option<i32> {
    i32::try_from(take(data)?).ok()
}

fn take_long(data: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for (index, &byte) in data.iter().take(10).enumerate() {
        // The tenth byte holds the 64th bit alone.
        if index == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            *data = &data[index + 1..];
            return Some(unzigzag(value));
        }
    }
    None
}

#[inline]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline]
fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_vectors() {
        for (value, bytes) in [
            (0, &[0x00][..]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (63, &[0x7E]),
            (-64, &[0x7F]),
            (64, &[0x80, 0x01]),
            (8191, &[0xFE, 0x7F]),
            (8192, &[0x80, 0x80, 0x01]),
            (i64::from(i32::MAX), &[0xFE, 0xFF, 0xFF, 0xFF, 0x0F]),
            (
                i64::MIN,
                &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
            ),
        ] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out, bytes, "{value}");
            assert_eq!(size(value), bytes.len(), "{value}");
            let mut rest = bytes;
            assert_eq!(take(&mut rest), Some(value));
            assert!(rest.is_empty());
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn a_varint_that_does_not_fit_is_refused() {
        assert_eq!(take(&mut &[0xFF; 11][..]), None);
        assert_eq!(
            take(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02][..]),
            None
        );
        // One more than i32::MAX.
        assert_eq!(take_i32(&mut &[0x80, 0x80, 0x80, 0x80, 0x10][..]), None);
    }
}
