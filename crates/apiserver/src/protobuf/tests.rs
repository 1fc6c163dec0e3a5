//! Valid and malformed protobuf bodies.

use super::*;
use proptest::prelude::*;

fn bytes_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 128);
    [&[number << 3 | 2, length], bytes].concat()
}

fn object(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let identity = [bytes_field(1, api_version.as_bytes()), bytes_field(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), bytes_field(1, &identity), bytes_field(2, raw)].concat()
}

#[test]
fn every_referenced_message_is_listed() {
    for (name, fields) in MESSAGES.iter().collect::<std::collections::BTreeMap<_, _>>() {
        for field in fields {
            if let Type::Message(inner) = field.kind {
                assert!(
                    MESSAGES.contains_key(inner),
                    "{name}.{} refers to {inner}, which is not listed",
                    field.name
                );
            }
        }
    }
    assert!(MESSAGES.len() > 300);
}

#[test]
fn namespace_is_decoded() {
    let metadata =
        [bytes_field(1, b"team"), bytes_field(11, &[bytes_field(1, b"a"), bytes_field(2, b"b")].concat())]
            .concat();
    let raw = bytes_field(1, &metadata);
    assert_eq!(
        decode(&object("v1", "Namespace", &raw)).unwrap(),
        json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "team", "labels": {"a": "b"}}})
    );
}

#[test]
fn embedded_messages_are_inlined_and_special_types_decoded() {
    let secret = bytes_field(2, &bytes_field(1, b"x"));
    let volume = [bytes_field(1, b"v"), bytes_field(2, &bytes_field(7, &secret))].concat();
    let mut fields = Map::new();
    read_message("core.Volume", &volume, &mut fields, 0).unwrap();
    assert_eq!(fields["name"], "v");
    assert!(fields.len() == 2, "{fields:?}");
    let text = [vec![8, 1], bytes_field(3, b"50%")].concat();
    assert_eq!(read_value(Type::IntOrString, Wire::Bytes(&text), 0).unwrap(), "50%");
    assert_eq!(read_value(Type::IntOrString, Wire::Bytes(&[8, 0, 16, 80]), 0).unwrap(), 80);
    assert_eq!(read_value(Type::Time, Wire::Bytes(&[]), 0).unwrap(), Value::Null);
    assert_eq!(read_value(Type::Time, Wire::Bytes(&[8, 1]), 0).unwrap(), "1970-01-01T00:00:01Z");
}

#[test]
fn unsupported_kinds_are_reported() {
    let error = decode(&object("example.com/v1", "Widget", &[])).unwrap_err();
    assert_eq!(error.to_string(), "example.com/v1 Widget is not supported as protobuf");
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&object("v1", "Pod", bytes.get(..100).unwrap_or(&bytes)));
        let _ = decode(&[MAGIC, &bytes].concat());
    }
}
