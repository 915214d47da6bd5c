//! Laws of the AMQP 0-9-1 codec over random frames: what is decoded encodes to the same bytes, any prefix is incomplete,
//! any split of a stream yields the same frames, tables survive being taken apart and built anew, and damage is
//! survived.

use gatewayd::amqp091::codec::{
    BasicProperties, Decoded, FieldArray, FieldArrayBuilder, FieldTable, FieldTableBuilder, FieldValue,
    Frame, FrameType, Method, decode, encode_body_frame, encode_content, encode_content_header,
    encode_heartbeat, encode_properties,
};

use crate::amqp_frames::{METHODS, TX_METHODS, arguments, frame, properties, table};
use crate::mutate::mutate;
use crate::random::{Random, seed};

const ROUNDS: usize = 10_000;

/// Decodes everything in the frame and encodes it again from the decoded form.
pub fn encode_again(frame: &Frame<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match frame.frame_type {
        FrameType::Heartbeat => encode_heartbeat(&mut out),
        FrameType::Body => encode_body_frame(&mut out, frame.channel, frame.payload).unwrap(),
        FrameType::Header => {
            let header = frame.content_header().ok()?;
            assert_eq!(BasicProperties::decode(header.encoded_properties), Ok(header.properties));
            let mut encoded = Vec::new();
            encode_properties(&mut encoded, &header.properties).unwrap();
            encode_content_header(&mut out, frame.channel, header.body_bytes, &encoded, usize::MAX).unwrap();
        }
        FrameType::Method => {
            let method = frame.method().ok()?;
            method.encode(&mut out, frame.channel).unwrap();
        }
    }
    Some(out)
}

fn decoded(input: &[u8]) -> Frame<'_> {
    match decode(input, input.len()) {
        Ok(Decoded::Frame { frame, consumed }) => {
            assert_eq!(consumed, input.len());
            frame
        }
        other => panic!("{input:02x?} gives {other:?}"),
    }
}

#[test]
fn decoding_and_encoding_give_the_same_bytes() {
    let mut random = Random::new(seed("CODEC_SEED", 21));
    for _ in 0..ROUNDS {
        let input = frame(&mut random);
        assert_eq!(encode_again(&decoded(&input)), Some(input));
    }
}

#[test]
fn every_method_is_known_and_no_other() {
    let mut random = Random::new(seed("CODEC_SEED", 22));
    let all = METHODS.into_iter().chain(TX_METHODS.map(|method_id| (90, method_id, "")));
    let mut known = Vec::new();
    for (class_id, method_id, layout) in all {
        let mut payload = [class_id.to_be_bytes(), method_id.to_be_bytes()].concat();
        arguments(&mut random, layout, &mut payload);
        let method = Method::decode(&payload).unwrap();
        assert_eq!((method.id().class_id, method.id().method_id), (class_id, method_id));
        known.push((class_id, method_id));
    }
    for class_id in 0..=100_u16 {
        for method_id in 0..=130_u16 {
            let payload = [class_id.to_be_bytes(), method_id.to_be_bytes()].concat();
            if let Err(error) = Method::decode(&payload)
                && error.reply_code.number() == 503
            {
                assert!(!known.contains(&(class_id, method_id)));
            } else {
                assert!(known.contains(&(class_id, method_id)), "{class_id}.{method_id}");
            }
        }
    }
}

#[test]
fn any_prefix_is_incomplete_and_says_what_it_needs() {
    let mut random = Random::new(seed("CODEC_SEED", 23));
    for _ in 0..300 {
        let input = frame(&mut random);
        for cut in 0..input.len() {
            let needed = if cut < 7 { 0 } else { input.len() };
            assert_eq!(decode(&input[..cut], input.len()), Ok(Decoded::Incomplete { needed }));
        }
    }
}

#[test]
fn a_frame_over_frame_max_is_refused_by_its_header() {
    let mut random = Random::new(seed("CODEC_SEED", 24));
    for _ in 0..300 {
        let input = frame(&mut random);
        let error = decode(&input[..7], input.len() - 1).unwrap_err();
        assert_eq!(error.to_string(), "FRAME_ERROR - frame is larger than frame-max");
    }
}

#[test]
fn a_stream_split_anywhere_yields_the_same_frames() {
    let mut random = Random::new(seed("CODEC_SEED", 25));
    for _ in 0..60 {
        let frames: Vec<Vec<u8>> = (0..12).map(|_| frame(&mut random)).collect();
        let stream = frames.concat();
        let (mut seen, mut buffer) = (Vec::new(), Vec::new());
        let mut rest = stream.as_slice();
        while !rest.is_empty() {
            let most = if random.one_in(4) { 4_000 } else { 7 };
            let piece = (1 + random.below(most)).min(rest.len());
            buffer.extend_from_slice(&rest[..piece]);
            rest = &rest[piece..];
            while let Decoded::Frame { frame, consumed } = decode(&buffer, 1 << 20).unwrap() {
                seen.push(encode_again(&frame).unwrap());
                buffer.drain(..consumed);
            }
        }
        assert!(buffer.is_empty());
        assert_eq!(seen, frames);
    }
}

#[test]
fn a_content_is_cut_to_the_frame_size_and_whole_again() {
    let mut random = Random::new(seed("CODEC_SEED", 26));
    for _ in 0..300 {
        let encoded = properties(&mut random);
        let body_bytes = random.below(3_000);
        let body = random.bytes(body_bytes);
        let frame_bytes_max = 22 + encoded.len() + random.below(600);
        let mut out = Vec::new();
        encode_content(&mut out, 7, &encoded, &body, frame_bytes_max).unwrap();
        let (mut rest, mut joined) = (out.as_slice(), Vec::new());
        let mut headers = 0;
        while let Decoded::Frame { frame, consumed } = decode(rest, frame_bytes_max).unwrap() {
            assert!(consumed <= frame_bytes_max && frame.channel == 7);
            if frame.frame_type == FrameType::Header {
                let header = frame.content_header().unwrap();
                assert_eq!(header.body_bytes, u64::try_from(body.len()).unwrap());
                assert_eq!(header.encoded_properties, encoded);
                headers += 1;
            } else {
                assert!(!frame.payload.is_empty());
                joined.extend_from_slice(frame.payload);
            }
            rest = &rest[consumed..];
        }
        assert_eq!((rest.len(), headers), (0, 1));
        assert_eq!(joined, body);
    }
}

fn rebuilt_table(table: FieldTable<'_>) -> FieldTableBuilder {
    let mut builder = FieldTableBuilder::new();
    for (name, value) in table.iter() {
        with_rebuilt(value, &mut |value| builder.push(name.as_str().unwrap(), value).unwrap());
    }
    builder
}

fn rebuilt_array(array: FieldArray<'_>) -> FieldArrayBuilder {
    let mut builder = FieldArrayBuilder::new();
    for value in array.iter() {
        with_rebuilt(value, &mut |value| builder.push(value).unwrap());
    }
    builder
}

fn with_rebuilt(value: FieldValue<'_>, then: &mut dyn FnMut(FieldValue<'_>)) {
    match value {
        FieldValue::Table(table) => then(FieldValue::Table(rebuilt_table(table).table())),
        FieldValue::Array(array) => then(FieldValue::Array(rebuilt_array(array).array())),
        other => then(other),
    }
}

#[test]
fn a_table_taken_apart_and_built_anew_is_the_same() {
    let mut random = Random::new(seed("CODEC_SEED", 27));
    for _ in 0..ROUNDS / 4 {
        let built = table(&mut random, 5);
        let decoded = FieldTable::decode(built.table().as_bytes()).unwrap();
        assert_eq!(rebuilt_table(decoded), built);
        for (name, value) in decoded.iter() {
            assert_eq!(decoded.find(name.as_str().unwrap()), Some(value));
        }
    }
}

/// Walks everything there is to walk.
fn survives(input: &[u8]) {
    if let Ok(Decoded::Frame { frame, consumed }) = decode(input, usize::MAX) {
        assert!(consumed <= input.len());
        if let Some(again) = encode_again(&frame) {
            let second = encode_again(&decoded(&again)).expect("what was accepted is accepted again");
            assert_eq!(second, again, "encoding is canonical");
        }
        if let Ok(table) = FieldTable::decode(frame.payload) {
            assert!(values(table) <= frame.payload.len());
        }
    }
    if let Ok(properties) = BasicProperties::decode(input) {
        let mut encoded = Vec::new();
        encode_properties(&mut encoded, &properties).unwrap();
        assert!(encoded.len() <= input.len());
    }
}

fn values(table: FieldTable<'_>) -> usize {
    fn count(value: FieldValue<'_>) -> usize {
        match value {
            FieldValue::Table(table) => values(table),
            FieldValue::Array(array) => array.iter().map(count).sum(),
            _ => 1,
        }
    }
    table.iter().map(|(_, value)| count(value)).sum()
}

#[test]
fn random_bytes_are_survived() {
    let mut random = Random::new(seed("CODEC_SEED", 28));
    for _ in 0..ROUNDS * 3 {
        let length = random.below(64);
        let mut input = random.bytes(length);
        // Mostly a plausible frame around random bytes.
        if input.len() >= 12 && !random.one_in(4) {
            let end = input.len() - 1;
            input[end] = 0xce;
            input[0] = *random.pick(&[1, 2, 3, 8]);
            input[3..7].copy_from_slice(&u32::try_from(end - 7).unwrap().to_be_bytes());
            let (class_id, method_id, _) = *random.pick(&METHODS);
            input[7..9].copy_from_slice(&class_id.to_be_bytes());
            input[9..11].copy_from_slice(&method_id.to_be_bytes());
        }
        survives(&input);
    }
}

#[test]
fn mutated_frames_are_survived() {
    let mut random = Random::new(seed("CODEC_SEED", 29));
    for _ in 0..ROUNDS * 2 {
        let mut input = frame(&mut random);
        mutate(&mut random, &mut input);
        mend_size(&mut random, &mut input);
        survives(&input);
    }
}

/// Most damage breaks the frame's size or end; mended, the damage reaches what is inside.
pub fn mend_size(random: &mut Random, input: &mut [u8]) {
    if input.len() >= 8 && !random.one_in(4) {
        let end = input.len() - 1;
        input[end] = 0xce;
        input[3..7].copy_from_slice(&u32::try_from(end - 7).unwrap().to_be_bytes());
    }
}
