//! Compression: from one codec to another, and what other writers make of each.

use super::*;

#[test]
fn recoding_changes_the_codec_and_nothing_else() {
    for from in Codec::ALL {
        let mut sent = batch(from);
        set_base_offset(&mut sent, 40);
        set_leader_epoch(&mut sent, 3);
        sent[43..57].copy_from_slice(&[5; 14]); // producer, epoch, sequence
        sent[21] = 0;
        sent[22] |= 0x18; // append time, transactional
        sign(&mut sent);
        for to in Codec::ALL {
            let recoded = recode(&[&sent[..], &sent].concat(), to, 1 << 20).unwrap();
            assert_eq!(validate(&recoded, OPENED).unwrap().batches, 2);
            let (before, after) = (only(&sent).header, only(&recoded).header);
            assert_eq!(after.codec(), Ok(to));
            let kept = BatchHeader {
                length: after.length,
                crc: after.crc,
                attributes: before.attributes & !7 | to as i16,
                ..before
            };
            assert_eq!(after, kept);
            let mut scratch = (Vec::new(), Vec::new());
            assert_eq!(
                only(&recoded).open(&mut scratch.0, 1 << 20).unwrap(),
                only(&sent).open(&mut scratch.1, 1 << 20).unwrap()
            );
            if from == to {
                assert_eq!(only(&recoded).bytes, sent);
            }
        }
    }
}

#[test]
fn what_is_damaged_or_too_large_is_not_recoded() {
    let mut bad = batch(Codec::None);
    *bad.last_mut().unwrap() ^= 1;
    let fault = |data: &[u8]| recode(data, Codec::Lz4, 50).unwrap_err().fault;
    assert!(matches!(fault(&bad), Fault::Crc { .. }));
    let codec = Codec::Zstd;
    assert_eq!(fault(&batch(codec)), Fault::TooLarge { codec, limit: 50 });
}

#[test]
fn what_decompresses_beyond_the_bound_is_refused() {
    let mut builder = BatchBuilder::new();
    builder.push(0, None, Some(&vec![0; 1 << 20]), []);
    let plain_bytes = builder.clone().finish().len() - HEADER_BYTES;
    for codec in &Codec::ALL[1..] {
        let bomb = builder.clone().finish_with(*codec);
        assert!(bomb.len() < plain_bytes / 10);
        validate(
            &bomb,
            Compressed::Opened {
                bytes_max: plain_bytes,
            },
        )
        .unwrap();
        let limit = plain_bytes - 1;
        let refused = fault(validate(&bomb, Compressed::Opened { bytes_max: limit }));
        assert_eq!(
            refused,
            Fault::TooLarge {
                codec: *codec,
                limit
            }
        );
        validate(&bomb, Compressed::Closed).unwrap();
    }
}

#[test]
fn the_decoder_holds_the_bound_too() {
    let mut builder = BatchBuilder::new();
    builder.push(0, None, Some(&vec![0; DECOMPRESSED_BYTES_MAX]), []);
    let bomb = builder.finish_with(Codec::Zstd);
    assert!(bomb.len() < 1 << 20);
    let refused = decode(&bomb).unwrap_err().fault;
    assert_eq!(
        refused,
        Fault::TooLarge {
            codec: Codec::Zstd,
            limit: DECOMPRESSED_BYTES_MAX
        }
    );
}

#[test]
fn a_snappy_length_that_lies_takes_no_memory() {
    let lie = [0xFF, 0xFF, 0xFF, 0xFF, 0x07, 0, 0, 0];
    let bad = signed(&batch(Codec::Snappy), &lie);
    assert_eq!(
        fault(validate(&bad, OPENED)),
        Fault::Compression(Codec::Snappy)
    );
}

#[test]
fn every_framing_that_clients_write_is_read() {
    let plain = batch(Codec::None);
    let body = &plain[HEADER_BYTES..];
    let framed = |codec: Codec, body: &[u8]| {
        let mut template = plain.clone();
        template[22] = codec as u8;
        let data = signed(&template, body);
        validate(&data, OPENED).unwrap();
        assert_eq!(decode(&data).unwrap(), decode(&plain).unwrap());
    };
    // librdkafka writes raw snappy, the Java client xerial blocks.
    framed(
        Codec::Snappy,
        &snap::raw::Encoder::new().compress_vec(body).unwrap(),
    );
    // Concatenated gzip members and zstd frames are one stream.
    let gzip = |part: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(part).unwrap();
        encoder.finish().unwrap()
    };
    let (head, tail) = body.split_at(20);
    framed(Codec::Gzip, &[gzip(head), gzip(tail)].concat());
    let zstd = |part| zstd::stream::encode_all(part, 1).unwrap();
    framed(Codec::Zstd, &[zstd(head), zstd(tail)].concat());
    let lz4 = |info| {
        let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    };
    let info = lz4_flex::frame::FrameInfo::new;
    framed(
        Codec::Lz4,
        &lz4(info().content_checksum(true).block_checksums(true)),
    );
    framed(
        Codec::Lz4,
        &lz4(info().block_mode(lz4_flex::frame::BlockMode::Linked)),
    );
    framed(
        Codec::Lz4,
        &lz4(info().content_size(Some(body.len() as u64))),
    );
}

#[test]
fn large_bodies_span_blocks_in_every_codec() {
    let value: Vec<u8> = (0..300_000_u32)
        .flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 16).to_le_bytes())
        .collect();
    for codec in Codec::ALL {
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(&value), []);
        assert_eq!(
            decode(&builder.finish_with(codec)).unwrap().values.data,
            value
        );
    }
}
