//! Record batches against damage, lies and other writers' framings.

use std::io::Write;

use headrace_core::record::{
    decode_columns, recode, record_bytes, set_base_offset, set_leader_epoch, validate, Batch,
    BatchBuilder, BatchHeader, Batches, Codec, Columns, Compressed, Error, Fault, Record, Records,
    Source, Summary, DECOMPRESSED_BYTES_MAX, HEADER_BYTES, LATER_RECORD_BYTES,
};

const OPENED: Compressed = Compressed::Opened {
    bytes_max: DECOMPRESSED_BYTES_MAX,
};

/// Three records with keys, nulls and headers.
fn batch(codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    let headers = [
        (&b"mqtt.topic"[..], Some(&b"dcgm/node-1"[..])),
        (b"empty", Some(b"")),
        (b"null", None),
    ];
    builder.push(1_000, Some(b"key"), Some(&[b'v'; 100]), headers);
    builder.push(999, None, Some(b""), headers[..1].iter().copied());
    builder.push(70_000, Some(b""), None, []);
    builder.finish_with(codec)
}

/// The batch around `body`, as a client would sign it.
fn signed(template: &[u8], body: &[u8]) -> Vec<u8> {
    let mut batch = [&template[..HEADER_BYTES], body].concat();
    let length = batch.len() as i32 - 12;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    sign(&mut batch);
    batch
}

fn sign(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

fn decode(data: &[u8]) -> Result<Columns, Error> {
    decode_columns(data, i64::MIN, i64::MAX, usize::MAX)
}

fn only(data: &[u8]) -> Batch<'_> {
    Batches::new(data).next().unwrap().unwrap()
}

fn fault(result: Result<Summary, Error>) -> Fault {
    result.unwrap_err().fault
}

#[test]
fn a_run_of_batches_is_summed_up() {
    let mut second = batch(Codec::Zstd);
    set_base_offset(&mut second, 3);
    let summary = validate(&[batch(Codec::None), second].concat(), OPENED).unwrap();
    assert_eq!(
        (summary.batches, summary.records, summary.max_timestamp),
        (2, 6, 70_000)
    );
    assert!(!summary.control && !summary.transactional);
    assert_eq!(validate(&[], OPENED).unwrap().batches, 0);
}

#[test]
fn offset_and_epoch_are_stamped_outside_the_crc() {
    let mut stamped = batch(Codec::None);
    set_base_offset(&mut stamped, i64::MAX - 3);
    set_leader_epoch(&mut stamped, 7);
    validate(&stamped, OPENED).unwrap();
    let header = BatchHeader::parse(&stamped).unwrap();
    assert_eq!((header.base_offset, header.leader_epoch), (i64::MAX - 3, 7));
    assert_eq!(
        (header.last_offset(), header.next_offset()),
        (i64::MAX - 1, i64::MAX)
    );
}

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
fn a_batch_cut_anywhere_is_truncated_and_says_where() {
    for codec in Codec::ALL {
        let (first, second) = (batch(codec), batch(codec));
        for cut in 1..second.len() {
            let error = validate(&[&first, &second[..cut]].concat(), OPENED).unwrap_err();
            assert_eq!(error.position, first.len());
            assert!(matches!(error.fault, Fault::Truncated { available, .. } if available == cut));
        }
    }
}

#[test]
fn no_flipped_bit_that_the_crc_covers_passes() {
    for codec in Codec::ALL {
        let good = batch(codec);
        for bit in 0..8 * good.len() {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let stamp = matches!(bit / 8, 0..=7 | 12..=15);
            for compressed in [OPENED, Compressed::Closed] {
                assert_eq!(
                    validate(&bad, compressed).is_ok(),
                    stamp,
                    "{codec}, bit {bit}"
                );
            }
            let decoded = decode(&bad);
            match bit / 8 {
                // The offsets alone differ.
                0..=7 | 12..=15 => {
                    assert_eq!(decoded.unwrap().values, decode(&good).unwrap().values);
                }
                // A longer batch is not all there yet.
                8..=11 => assert!(decoded.map_or(true, |columns| columns.records == 0)),
                _ => assert!(decoded.is_err(), "{codec}, bit {bit}"),
            }
        }
    }
}

#[test]
fn what_a_liar_signs_is_refused_or_read_alike() {
    for codec in Codec::ALL {
        let good = batch(codec);
        for at in 21..good.len() {
            let flipped = (0..8).map(|bit| good[at] ^ 1 << bit);
            for value in flipped.chain([0, 0x7F, 0x80, 0xFF]) {
                let mut bad = good.clone();
                bad[at] = value;
                sign(&mut bad);
                if let Ok(summary) = validate(&bad, OPENED) {
                    let columns = decode(&bad).unwrap();
                    let expected = if summary.control { 0 } else { summary.records };
                    assert_eq!(
                        columns.records as u64, expected,
                        "{codec}, byte {at} = {value}"
                    );
                } else {
                    let _ = decode(&bad);
                }
            }
        }
    }
}

#[test]
fn a_signed_body_cut_anywhere_loses_no_record_unseen() {
    for codec in Codec::ALL {
        let good = batch(codec);
        let body = &good[HEADER_BYTES..];
        for cut in 0..body.len() {
            let bad = signed(&good, &body[..cut]);
            let Err(error) = validate(&bad, OPENED) else {
                // An LZ4 frame may lack its end mark, four bytes that hold no record.
                assert!(codec == Codec::Lz4 && cut >= body.len() - 4);
                continue;
            };
            assert!(
                matches!(error.fault, Fault::Record { .. } | Fault::Compression(_)),
                "{error}"
            );
            assert_eq!(decode(&bad).unwrap_err(), error);
        }
    }
}

#[test]
fn records_beyond_the_count_are_refused() {
    let good = batch(Codec::None);
    let bad = signed(&good, &[&good[HEADER_BYTES..], &[0]].concat());
    assert_eq!(
        fault(validate(&bad, OPENED)),
        Fault::Record {
            index: 3,
            part: "end of the batch"
        }
    );
}

#[test]
fn the_header_must_be_true() {
    let edit = |at: usize, bytes: &[u8]| {
        let mut batch = batch(Codec::None);
        batch[at..at + bytes.len()].copy_from_slice(bytes);
        sign(&mut batch);
        fault(validate(&batch, OPENED))
    };
    assert_eq!(edit(16, &[1]), Fault::Magic(1));
    assert_eq!(edit(8, &48_i32.to_be_bytes()), Fault::Length(48));
    assert_eq!(edit(8, &(-1_i32).to_be_bytes()), Fault::Length(-1));
    assert_eq!(edit(21, &0x80_i16.to_be_bytes()), Fault::Attributes(0x80));
    assert_eq!(edit(21, &5_i16.to_be_bytes()), Fault::Codec(5));
    assert_eq!(
        edit(23, &3_i32.to_be_bytes()),
        Fault::Count {
            count: 3,
            last_offset_delta: 3
        }
    );
    assert_eq!(
        edit(57, &(-1_i32).to_be_bytes()),
        Fault::Count {
            count: -1,
            last_offset_delta: 2
        }
    );
    assert!(matches!(
        edit(8, &i32::MAX.to_be_bytes()),
        Fault::Truncated { .. }
    ));
}

#[test]
fn a_count_that_lies_takes_no_memory() {
    let mut bad = batch(Codec::None);
    bad[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
    bad[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    sign(&mut bad);
    assert_eq!(
        fault(validate(&bad, OPENED)),
        Fault::Record {
            index: 3,
            part: "length"
        }
    );
    decode(&bad).unwrap_err();
}

#[test]
fn the_flags_of_transactions_and_compaction_pass_through() {
    let mut control = batch(Codec::None);
    control[22] = 0x70;
    sign(&mut control);
    let summary = validate(&control, OPENED).unwrap();
    assert!(summary.control && summary.transactional);
    let header = BatchHeader::parse(&control).unwrap();
    assert!(header.has_delete_horizon() && !header.is_log_append_time());
    let columns = decode(&control).unwrap();
    assert_eq!((columns.records, columns.next_offset), (0, 3));
}

#[test]
fn append_time_replaces_the_timestamps_of_the_records() {
    let mut stamped = batch(Codec::None);
    stamped[22] = 0x08;
    sign(&mut stamped);
    let batch = only(&stamped);
    let times: Vec<_> = Records::new(&batch.header, batch.body())
        .map(|r| r.unwrap().timestamp)
        .collect();
    assert_eq!(times, [70_000; 3]);
}

#[test]
fn offsets_that_compaction_left_are_read_and_others_refused() {
    // One record at delta 2 of a batch of three.
    let good = batch(Codec::None);
    let record = |delta: u8| [14, 0, 0, 2 * delta, 1, 1, 0, 0];
    let compacted = |deltas: [u8; 2]| {
        let mut batch = good.clone();
        batch[57..61].copy_from_slice(&2_i32.to_be_bytes());
        let records = deltas.map(|delta| record(delta)[..7].to_vec()).concat();
        let records: Vec<u8> = records
            .chunks(7)
            .flat_map(|r| [&[12][..], &r[1..]].concat())
            .collect();
        signed(&batch, &records)
    };
    let columns = decode(&compacted([0, 2])).unwrap();
    assert_eq!(columns.offsets, [0_i64, 2].map(i64::to_le_bytes).concat());
    assert_eq!(columns.next_offset, 3);
    for deltas in [[1, 1], [2, 0], [0, 3]] {
        let error = decode(&compacted(deltas)).unwrap_err();
        assert_eq!(
            error.fault,
            Fault::Record {
                index: 1,
                part: "offset"
            }
        );
    }
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

#[test]
fn how_large_a_record_will_be_is_known_before_it_is_there() {
    let mut builder = BatchBuilder::new();
    for at in [0, 1, 7, 63, 64, 8_191, 8_192, 1 << 20] {
        let long = vec![b'x'; at];
        let header = (&b"name"[..], Some(&long[..]));
        for headers in [
            vec![],
            vec![header],
            vec![header, (b"", None)],
            vec![header; 64],
        ] {
            for (key, value) in [
                (None, None),
                (None, Some(&long[..])),
                (Some(&long[..]), None),
            ] {
                builder.push(5, key, value, headers.iter().copied());
                let size = record_bytes(key, value, headers.iter().copied());
                assert_eq!(builder.bytes(), HEADER_BYTES + size);
                builder.push(i64::MAX, key, value, headers.iter().copied());
                let later = builder.bytes() - HEADER_BYTES - size;
                assert!((size..=size + LATER_RECORD_BYTES).contains(&later));
                builder.finish();
            }
        }
    }
}

#[test]
fn a_record_tells_its_headers_and_its_source() {
    let mut builder = BatchBuilder::new();
    let source = [
        (&b"source"[..], Some(&b"rack-7"[..])),
        (b"epoch", Some(b"2")),
        (b"sequence", Some(b"9")),
    ];
    builder.push(0, None, None, source);
    builder.push(0, None, None, [(&b"source"[..], None), (b"null", None)]);
    let data = builder.finish_published(Codec::None);
    let batch = only(&data);
    assert!(batch.header.is_published());
    assert!(matches!(
        validate(&data, Compressed::Closed).unwrap_err().fault,
        Fault::Attributes(_)
    ));
    let records: Vec<Record> = Records::new(&batch.header, batch.body())
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        records[0].source(),
        Some(Source {
            name: "rack-7",
            epoch: 2,
            sequence: 9
        })
    );
    assert_eq!(records[1].source(), None);
    assert_eq!(records[0].header(b"epoch"), Some(&b"2"[..]));
    assert_eq!(
        (records[1].header(b"null"), records[1].header(b"other")),
        (None, None)
    );
}

#[test]
fn a_walk_ends_at_the_first_batch_that_is_wrong() {
    let good = batch(Codec::None);
    let mut bad = good.clone();
    bad[16] = 0;
    let data = [&good[..], &bad, &good].concat();
    let mut walk = Batches::new(&data);
    assert!(walk.next().unwrap().is_ok());
    assert_eq!(walk.next().unwrap().unwrap_err().fault, Fault::Magic(0));
    assert!(walk.next().is_none());
    assert_eq!(walk.position(), good.len());
}
