//! The compression codecs, both ways, in the framings that Kafka clients write.
//!
//! Decompression stops at a bound, whatever the compressed bytes claim: the output grows only
//! with bytes that were really produced.

use std::io::{Read, Write};

use super::{Codec, Fault};

/// Magic of the xerial framing (`snappy-java`), which Kafka's Java client writes.
const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\0";
/// The magic, then the version and the lowest compatible version, an i32 each.
const XERIAL_HEADER_BYTES: usize = 16;
/// Bytes that one xerial block holds before compression, as in `snappy-java`.
const XERIAL_BLOCK_BYTES: usize = 32 << 10;
/// Kafka's own default level for zstd.
const ZSTD_LEVEL: i32 = 3;

/// Appends the decompressed `body` to `out`, at most `bytes_max` of it.
pub(super) fn decompress(
    codec: Codec,
    body: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), Fault> {
    match codec {
        Codec::None => {
            out.extend_from_slice(body);
            Ok(())
        }
        // Concatenated members are one stream (RFC 1952 2.2).
        Codec::Gzip => drain(
            codec,
            flate2::bufread::MultiGzDecoder::new(body),
            out,
            bytes_max,
        ),
        Codec::Snappy => snappy(body, out, bytes_max),
        Codec::Lz4 => drain(
            codec,
            lz4_flex::frame::FrameDecoder::new(body),
            out,
            bytes_max,
        ),
        Codec::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(body)
                .map_err(|_| Fault::Compression(codec))?;
            drain(codec, decoder, out, bytes_max)
        }
    }
}

/// Appends the compressed `body` to `out`.
pub(super) fn compress(codec: Codec, body: &[u8], out: &mut Vec<u8>) {
    match codec {
        Codec::None => out.extend_from_slice(body),
        Codec::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            encoder
                .write_all(body)
                .and_then(|()| encoder.finish().map(drop))
                .expect(IN_MEMORY);
        }
        Codec::Snappy => snappy_xerial(body, out),
        Codec::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(out);
            encoder.write_all(body).expect(IN_MEMORY);
            encoder.finish().expect(IN_MEMORY);
        }
        Codec::Zstd => zstd::stream::copy_encode(body, out, ZSTD_LEVEL).expect(IN_MEMORY),
    }
}

const IN_MEMORY: &str = "writing to memory does not fail";

fn drain(
    codec: Codec,
    decoder: impl Read,
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), Fault> {
    let before = out.len();
    // One byte more than the bound tells "at the bound" from "past it".
    decoder
        .take(bytes_max as u64 + 1)
        .read_to_end(out)
        .map_err(|_| Fault::Compression(codec))?;
    if out.len() - before > bytes_max {
        return Err(Fault::TooLarge {
            codec,
            limit: bytes_max,
        });
    }
    Ok(())
}

fn snappy(body: &[u8], out: &mut Vec<u8>, bytes_max: usize) -> Result<(), Fault> {
    let malformed = Fault::Compression(Codec::Snappy);
    let mut left = bytes_max;
    if !body.starts_with(XERIAL_MAGIC) {
        return snappy_block(body, out, &mut left, bytes_max);
    }
    let mut rest = body
        .get(XERIAL_HEADER_BYTES..)
        .ok_or_else(|| malformed.clone())?;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        let (block, after) = after
            .split_at_checked(length)
            .ok_or_else(|| malformed.clone())?;
        snappy_block(block, out, &mut left, bytes_max)?;
        rest = after;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(malformed)
    }
}

fn snappy_block(
    block: &[u8],
    out: &mut Vec<u8>,
    left: &mut usize,
    bytes_max: usize,
) -> Result<(), Fault> {
    let malformed = |_| Fault::Compression(Codec::Snappy);
    let length = snap::raw::decompress_len(block).map_err(malformed)?;
    // An element yields at most 64 bytes from 3 (a copy with a two-byte offset), so that a length
    // of more than 22 times the input is a lie, found before memory is taken for it.
    if length / 22 > block.len() {
        return Err(Fault::Compression(Codec::Snappy));
    }
    *left = left.checked_sub(length).ok_or(Fault::TooLarge {
        codec: Codec::Snappy,
        limit: bytes_max,
    })?;
    let start = out.len();
    out.resize(start + length, 0);
    snap::raw::Decoder::new()
        .decompress(block, &mut out[start..])
        .map_err(malformed)?;
    Ok(())
}

fn snappy_xerial(body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(XERIAL_MAGIC);
    out.extend_from_slice(&1_i32.to_be_bytes());
    out.extend_from_slice(&1_i32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in body.chunks(XERIAL_BLOCK_BYTES) {
        let at = out.len();
        out.resize(at + 4 + snap::raw::max_compress_len(block.len()), 0);
        let length = encoder
            .compress(block, &mut out[at + 4..])
            .expect(IN_MEMORY);
        out[at..at + 4].copy_from_slice(&(length as u32).to_be_bytes());
        out.truncate(at + 4 + length);
    }
}
