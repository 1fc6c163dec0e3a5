//! Decodes Kubernetes protobuf requests for built-in kinds into JSON.
//!
//! Typed Go clients send protobuf by default, such as `kubectl auth can-i` and `kubectl create namespace`. Responses
//! are never protobuf: these clients also accept JSON. `fields.txt` maps field numbers to names: one message per line,
//! with `number:name:type` for each field. The name `-` marks an embedded message whose fields are inlined. A type is
//! another message or a letter (see `Type`), prefixed by `*` for a list, `%` for a map with string keys, and `L` for a
//! list in a message of its own.

use crate::clock;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// The prefix of every encoded object.
const MAGIC: &[u8] = b"k8s\0";
/// Limit of nesting.
const DEPTH_MAX: usize = 64;

/// Why a body cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The prefix is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    /// The encoding is malformed.
    #[error("the request body is not valid protobuf: {0}")]
    Malformed(&'static str),
    /// The kind is only supported as JSON or YAML.
    #[error("{api_version} {kind} is not supported as protobuf")]
    UnknownKind { api_version: String, kind: String },
}

#[derive(Clone, Copy, Debug)]
enum Type {
    /// `s`: string.
    Text,
    /// `b`: bytes, base64 in JSON.
    Bytes,
    /// `i`: integer.
    Integer,
    /// `t`: boolean.
    Truth,
    /// `d`: floating-point number.
    Double,
    /// `q`: `resource.Quantity`.
    Quantity,
    /// `o`: `intstr.IntOrString`.
    IntOrString,
    /// `j`: raw JSON.
    Json,
    /// `T`: `metav1.Time`.
    Time,
    /// `U`: `metav1.MicroTime`.
    MicroTime,
    /// Another message.
    Message(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    One,
    List,
    Map,
    /// A map whose values are messages that hold a list.
    MapOfLists,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    number: u32,
    name: &'static str,
    shape: Shape,
    kind: Type,
}

static MESSAGES: LazyLock<FxHashMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let lines = include_str!("protobuf/fields.txt").lines();
    lines
        .filter_map(|line| {
            let (name, fields) = line.split_once(' ').unwrap_or((line, ""));
            Some((name, fields.split_ascii_whitespace().map(read_field).collect::<Option<_>>()?))
        })
        .collect()
});

fn read_field(text: &'static str) -> Option<Field> {
    let mut parts = text.splitn(3, ':');
    let (number, name, kind) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
    let (shape, kind) = match kind.as_bytes().first()? {
        b'%' if kind.starts_with("%L*") => (Shape::MapOfLists, &kind[3..]),
        b'%' => (Shape::Map, &kind[1..]),
        b'*' => (Shape::List, &kind[1..]),
        _ => (Shape::One, kind),
    };
    let kind = match kind {
        "s" => Type::Text,
        "b" => Type::Bytes,
        "i" => Type::Integer,
        "t" => Type::Truth,
        "d" => Type::Double,
        "q" => Type::Quantity,
        "o" => Type::IntOrString,
        "j" => Type::Json,
        "T" => Type::Time,
        "U" => Type::MicroTime,
        message => Type::Message(message),
    };
    Some(Field { number, name, shape, kind })
}

/// Decodes an object with its `runtime.Unknown` envelope.
pub fn decode(bytes: &[u8]) -> Result<Value, Error> {
    let bytes = bytes.strip_prefix(MAGIC).ok_or(Error::NoMagic)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for part in parts(bytes) {
        match part? {
            (1, Wire::Bytes(identity)) => {
                for part in parts(identity) {
                    match part? {
                        (1, Wire::Bytes(text)) => api_version = text_of(text)?,
                        (2, Wire::Bytes(text)) => kind = text_of(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(object)) => raw = object,
            _ => {}
        }
    }
    let Some(message) = message_of(&api_version, &kind) else {
        return Err(Error::UnknownKind { api_version, kind });
    };
    let mut fields = Map::new();
    read_message(message, raw, &mut fields, 0)?;
    fields.insert("apiVersion".to_owned(), Value::from(api_version));
    fields.insert("kind".to_owned(), Value::from(kind));
    Ok(Value::Object(fields))
}

fn message_of(api_version: &str, kind: &str) -> Option<&'static str> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let package = match (group, version, kind) {
        (_, _, "DeleteOptions") => "meta",
        ("", "v1", _) => "core",
        (_, "v1", _) => group.split('.').next()?,
        _ => return None,
    };
    MESSAGES.get_key_value(format!("{package}.{kind}").as_str()).map(|(name, _)| *name)
}

fn read_message(name: &str, bytes: &[u8], into: &mut Map<String, Value>, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(Error::Malformed("the message is nested too deeply"));
    }
    let fields = MESSAGES.get(name).map(Vec::as_slice).unwrap_or_default();
    for part in parts(bytes) {
        let (number, wire) = part?;
        let Some(field) = fields.iter().find(|field| field.number == number) else { continue };
        if let (Shape::One, "-", Type::Message(inner), Wire::Bytes(bytes)) =
            (field.shape, field.name, field.kind, wire)
        {
            read_message(inner, bytes, into, depth + 1)?;
            continue;
        }
        match field.shape {
            Shape::One => {
                into.insert(field.name.to_owned(), read_value(field.kind, wire, depth)?);
            }
            Shape::List => {
                let list = into.entry(field.name).or_insert_with(|| json!([]));
                let values = read_elements(field.kind, wire, depth)?;
                if let Some(list) = list.as_array_mut() {
                    list.extend(values);
                }
            }
            Shape::Map | Shape::MapOfLists => {
                let (key, value) = read_entry(*field, wire, depth)?;
                let map = into.entry(field.name).or_insert_with(|| json!({}));
                if let Some(map) = map.as_object_mut() {
                    map.insert(key, value);
                }
            }
        }
    }
    Ok(())
}

/// The elements of a repeated field; integers may be packed.
fn read_elements(kind: Type, wire: Wire<'_>, depth: usize) -> Result<Vec<Value>, Error> {
    let (Type::Integer, Wire::Bytes(mut packed)) = (kind, wire) else {
        return Ok(vec![read_value(kind, wire, depth)?]);
    };
    let mut values = Vec::new();
    while !packed.is_empty() {
        values.push(Value::from(read_varint(&mut packed)? as i64));
    }
    Ok(values)
}

fn read_entry(field: Field, wire: Wire<'_>, depth: usize) -> Result<(String, Value), Error> {
    let Wire::Bytes(entry) = wire else { return Err(Error::Malformed("a map entry is malformed")) };
    let (mut key, mut value) = (String::new(), Value::Null);
    for part in parts(entry) {
        match (part?, field.shape) {
            ((1, Wire::Bytes(text)), _) => key = text_of(text)?,
            ((2, Wire::Bytes(list)), Shape::MapOfLists) => {
                let mut items = Vec::new();
                for part in parts(list) {
                    items.push(read_value(field.kind, part?.1, depth)?);
                }
                value = Value::from(items);
            }
            ((2, wire), Shape::One | Shape::List | Shape::Map) => {
                value = read_value(field.kind, wire, depth)?;
            }
            _ => {}
        }
    }
    Ok((key, value))
}

fn read_value(kind: Type, wire: Wire<'_>, depth: usize) -> Result<Value, Error> {
    match (kind, wire) {
        (Type::Text, Wire::Bytes(bytes)) => Ok(Value::from(text_of(bytes)?)),
        (Type::Bytes, Wire::Bytes(bytes)) => Ok(Value::from(STANDARD.encode(bytes))),
        (Type::Integer, Wire::Number(number)) => Ok(Value::from(number as i64)),
        (Type::Truth, Wire::Number(number)) => Ok(Value::from(number != 0)),
        (Type::Double, Wire::Fixed(bits)) => Ok(Value::from(f64::from_bits(bits))),
        (Type::Quantity, Wire::Bytes(bytes)) => {
            Ok(part_text(bytes, 1)?.map_or_else(|| Value::from("0"), Value::from))
        }
        (Type::IntOrString, Wire::Bytes(bytes)) => {
            const IS_TEXT: u64 = 1;
            if part_number(bytes, 1)? == IS_TEXT {
                return Ok(Value::from(part_text(bytes, 3)?.unwrap_or_default()));
            }
            Ok(Value::from(part_number(bytes, 2)? as i64))
        }
        (Type::Json, Wire::Bytes(bytes)) => {
            let text = part_text(bytes, 1)?.unwrap_or_default();
            if text.is_empty() {
                return Ok(Value::Null);
            }
            serde_json::from_str(&text).map_err(|_| Error::Malformed("an embedded object is not JSON"))
        }
        (Type::Time | Type::MicroTime, Wire::Bytes([])) => Ok(Value::Null),
        (Type::Time | Type::MicroTime, Wire::Bytes(bytes)) => {
            let (seconds, nanos) = (part_number(bytes, 1)? as i64, part_number(bytes, 2)? as i32);
            let time =
                Timestamp::new(seconds, nanos).map_err(|_| Error::Malformed("a time is out of range"))?;
            Ok(Value::from(if matches!(kind, Type::Time) {
                clock::time(time)
            } else {
                clock::micro_time(time)
            }))
        }
        (Type::Message(name), Wire::Bytes(bytes)) => {
            let mut fields = Map::new();
            read_message(name, bytes, &mut fields, depth + 1)?;
            Ok(Value::Object(fields))
        }
        _ => Err(Error::Malformed("a field has the wrong wire type")),
    }
}

fn text_of(bytes: &[u8]) -> Result<String, Error> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Error::Malformed("a string is not UTF-8"))
}

fn part_text(bytes: &[u8], wanted: u32) -> Result<Option<String>, Error> {
    for part in parts(bytes) {
        if let (number, Wire::Bytes(text)) = part?
            && number == wanted
        {
            return text_of(text).map(Some);
        }
    }
    Ok(None)
}

fn part_number(bytes: &[u8], wanted: u32) -> Result<u64, Error> {
    for part in parts(bytes) {
        if let (number, Wire::Number(value)) = part?
            && number == wanted
        {
            return Ok(value);
        }
    }
    Ok(0)
}

#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order.
fn parts(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u32, Wire<'_>), Error>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let part = read_part(&mut bytes);
        if part.is_err() {
            bytes = &[];
        }
        Some(part)
    })
}

fn read_part<'a>(bytes: &mut &'a [u8]) -> Result<(u32, Wire<'a>), Error> {
    let tag = read_varint(bytes)?;
    let number = u32::try_from(tag >> 3).map_err(|_| Error::Malformed("a field number is too large"))?;
    let wire = match tag & 7 {
        0 => Wire::Number(read_varint(bytes)?),
        1 => Wire::Fixed(u64::from_le_bytes(take(bytes, 8)?.try_into().expect("eight bytes were taken"))),
        2 => {
            let length = usize::try_from(read_varint(bytes)?)
                .map_err(|_| Error::Malformed("the message is truncated"))?;
            Wire::Bytes(take(bytes, length)?)
        }
        5 => {
            let four: [u8; 4] = take(bytes, 4)?.try_into().expect("four bytes were taken");
            Wire::Fixed(u64::from(u32::from_le_bytes(four)))
        }
        _ => return Err(Error::Malformed("a field has an unknown wire type")),
    };
    Ok((number, wire))
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Error> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(Error::Malformed("the message is truncated"))?;
    *bytes = rest;
    Ok(taken)
}

fn read_varint(bytes: &mut &[u8]) -> Result<u64, Error> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Error::Malformed("a varint is too long"))
}

#[cfg(test)]
mod tests;
