//! Scans JSON text as a stream and extracts one value at a time.
//!
//! A snapshot is one object with long lists inside. Only the buffer and the current value are in memory as text; nesting uses
//! no stack, and bytes and structural characters are counted against limits. Elements that lie whole in the buffer, as nearly
//! all do, are parsed in place ([`Scanner::elements`]).

use serde::de::DeserializeOwned;
use std::io::Read;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 128 << 10;

/// Limits of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of text, uncompressed.
    pub bytes: u64,
    /// Bytes of one object.
    pub value_bytes: usize,
    /// Structural characters (`{`, `[`, `,`) of the whole text: they bound the memory of many tiny values. Those inside strings
    /// may count, too.
    pub tokens: u64,
    /// Objects of one list.
    pub objects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 2 << 30, value_bytes: 4 << 20, tokens: 64_000_000, objects: 1_000_000 }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    #[error("cannot be read after {offset} bytes: {cause}")]
    Read { offset: u64, cause: std::io::Error },
    #[error("is not JSON at byte {offset}: expected {expected}")]
    Syntax { offset: u64, expected: &'static str },
    #[error("has more than {limit} {what}")]
    TooLarge { what: &'static str, limit: u64 },
}

/// A position in a stream of JSON text.
pub(super) struct Scanner<R> {
    reader: R,
    buffer: Box<[u8]>,
    at: usize,
    filled: usize,
    /// Bytes before the buffer.
    passed: u64,
    tokens: u64,
    limits: Limits,
}

impl<R: Read> Scanner<R> {
    pub(super) fn new(reader: R, limits: Limits) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Self { reader, buffer, at: 0, filled: 0, passed: 0, tokens: 0, limits }
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn offset(&self) -> u64 {
        self.passed + self.at as u64
    }

    /// Peeks at the next byte after white space; `None` at the end.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, ScanError> {
        while let Some(byte) = self.byte()? {
            if !byte.is_ascii_whitespace() {
                return Ok(Some(byte));
            }
            self.at += 1;
        }
        Ok(None)
    }

    /// Consumes one expected byte.
    pub(super) fn take(&mut self, wanted: u8, expected: &'static str) -> Result<(), ScanError> {
        if self.peek()? == Some(wanted) {
            self.at += 1;
            Ok(())
        } else {
            Err(self.syntax(expected))
        }
    }

    /// Consumes `null` if it is next.
    pub(super) fn take_null(&mut self) -> Result<bool, ScanError> {
        if self.peek()? != Some(b'n') {
            return Ok(false);
        }
        let mut word = Vec::new();
        self.value(&mut word)?;
        if word == b"null" { Ok(true) } else { Err(self.syntax("null")) }
    }

    /// Advances to the next member of an object, past its key; `None` after the last one. `first` is the caller's state.
    pub(super) fn next_key(&mut self, first: &mut bool) -> Result<Option<String>, ScanError> {
        if !self.next_item(b'}', "`,` or `}`", first)? {
            return Ok(None);
        }
        if self.peek()? != Some(b'"') {
            return Err(self.syntax("a key in quotes"));
        }
        let mut text = Vec::new();
        self.value(&mut text)?;
        let key = serde_json::from_slice(&text).map_err(|_| self.syntax("a key in quotes"))?;
        self.take(b':', "`:`")?;
        Ok(Some(key))
    }

    /// Advances to the next element of a list; false after the last one. `first` is the caller's state.
    pub(super) fn next_element(&mut self, first: &mut bool) -> Result<bool, ScanError> {
        self.next_item(b']', "`,` or `]`", first)
    }

    /// Parses the elements of a list that lie whole in the buffer, until one is no valid object or `take` refuses it. That one is
    /// left to [`Scanner::next_element`] and [`Scanner::value`], whose caller says what is wrong with it.
    pub(super) fn elements<T: DeserializeOwned>(
        &mut self,
        first: &mut bool,
        mut take: impl FnMut(T) -> bool,
    ) -> Result<(), ScanError> {
        self.fill()?;
        let bytes = self.buffer.get(self.at..self.filled).unwrap_or_default();
        let text = valid_text(bytes);
        let mut end = 0;
        while let Some(start) = next_object(text, end, *first) {
            let rest = text.get(start..).unwrap_or_default();
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<T>();
            let Some(Ok(value)) = values.next() else { break };
            let size = values.byte_offset();
            if size > self.limits.value_bytes || !take(value) {
                break;
            }
            *first = false;
            end = start + size;
        }
        let tokens = structural_characters(text.as_bytes().get(..end).unwrap_or_default());
        self.at += end;
        self.count_tokens(tokens)
    }

    fn next_item(&mut self, end: u8, expected: &'static str, first: &mut bool) -> Result<bool, ScanError> {
        let next = self.peek()?;
        if next == Some(end) {
            self.at += 1;
            return Ok(false);
        }
        if !std::mem::replace(first, false) {
            self.take(b',', expected)?;
            self.count_tokens(1)?;
        } else if next.is_none() {
            return Err(self.syntax(expected));
        }
        Ok(true)
    }

    /// Extracts the next value as text.
    pub(super) fn value(&mut self, out: &mut Vec<u8>) -> Result<(), ScanError> {
        out.clear();
        let Some(first) = self.peek()? else {
            return Err(self.syntax("a value"));
        };
        match first {
            b'"' => self.string(out),
            b'{' | b'[' => self.nested(out),
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                while let Some(byte) = self.byte()? {
                    if !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')) {
                        break;
                    }
                    self.push(byte, out)?;
                }
                Ok(())
            }
            _ => Err(self.syntax("a value")),
        }
    }

    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), ScanError> {
        let mut escaped = false;
        let mut opened = false;
        while let Some(byte) = self.byte()? {
            self.push(byte, out)?;
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' if opened => return Ok(()),
                b'"' => opened = true,
                _ => {}
            }
        }
        Err(self.syntax("the end of a string"))
    }

    /// Extracts an object or a list. Most of the text passes here, so it is copied by buffers instead of bytes.
    fn nested(&mut self, out: &mut Vec<u8>) -> Result<(), ScanError> {
        let mut depth = 0u32;
        let (mut quoted, mut escaped) = (false, false);
        while self.byte()?.is_some() {
            let chunk = self.buffer.get(self.at..self.filled).unwrap_or_default();
            let mut end = None;
            let mut tokens = 0;
            for (position, byte) in chunk.iter().enumerate() {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' if quoted => escaped = true,
                    b'"' => quoted = !quoted,
                    _ if quoted => {}
                    b'{' | b'[' => {
                        depth += 1;
                        tokens += 1;
                    }
                    b',' => tokens += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            end = Some(position + 1);
                            break;
                        }
                    }
                    _ => {}
                }
            }
            let taken = end.and_then(|end| chunk.get(..end)).unwrap_or(chunk);
            if out.len() + taken.len() > self.limits.value_bytes {
                return Err(self.value_too_large());
            }
            out.extend_from_slice(taken);
            self.at += taken.len();
            self.count_tokens(tokens)?;
            if end.is_some() {
                return Ok(());
            }
        }
        Err(self.syntax("the end of a value"))
    }

    fn push(&mut self, byte: u8, out: &mut Vec<u8>) -> Result<(), ScanError> {
        if out.len() >= self.limits.value_bytes {
            return Err(self.value_too_large());
        }
        out.push(byte);
        self.at += 1;
        Ok(())
    }

    fn value_too_large(&self) -> ScanError {
        ScanError::TooLarge { what: "bytes in one value", limit: self.limits.value_bytes as u64 }
    }

    fn count_tokens(&mut self, more: u64) -> Result<(), ScanError> {
        self.tokens += more;
        if self.tokens > self.limits.tokens {
            return Err(ScanError::TooLarge { what: "values", limit: self.limits.tokens });
        }
        Ok(())
    }

    /// Peeks at the next byte.
    fn byte(&mut self) -> Result<Option<u8>, ScanError> {
        if self.at == self.filled {
            self.discard()?;
            if self.read()? == 0 {
                return Ok(None);
            }
        }
        Ok(self.buffer.get(self.at).copied())
    }

    /// Fills the buffer behind what was not consumed.
    fn fill(&mut self) -> Result<(), ScanError> {
        self.discard()?;
        while self.filled < self.buffer.len() && self.read()? > 0 {}
        Ok(())
    }

    /// Drops what was consumed, so that more can be read.
    fn discard(&mut self) -> Result<(), ScanError> {
        self.passed += self.at as u64;
        if self.passed > self.limits.bytes {
            return Err(ScanError::TooLarge { what: "bytes", limit: self.limits.bytes });
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        self.filled -= self.at;
        self.at = 0;
        Ok(())
    }

    /// Reads more into the buffer; 0 at the end.
    fn read(&mut self) -> Result<usize, ScanError> {
        loop {
            let into = self.buffer.get_mut(self.filled..).unwrap_or_default();
            match self.reader.read(into) {
                Ok(read) => {
                    self.filled += read;
                    return Ok(read);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(cause) => {
                    return Err(ScanError::Read { offset: self.passed + self.filled as u64, cause });
                }
            }
        }
    }

    fn syntax(&self, expected: &'static str) -> ScanError {
        ScanError::Syntax { offset: self.offset(), expected }
    }
}

/// The text up to the first bytes that are not UTF-8. The last character of a buffer may be cut off.
fn valid_text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_else(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        std::str::from_utf8(valid).unwrap_or_default()
    })
}

/// Where the next object of a list begins, past the comma before it; `None` where something else is next.
fn next_object(text: &str, at: usize, is_first: bool) -> Option<usize> {
    let skip = |from: usize| {
        let rest = text.as_bytes().get(from..)?;
        let spaces = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        Some((from + spaces, *rest.get(spaces)?))
    };
    let (mut at, mut byte) = skip(at)?;
    if !is_first {
        if byte != b',' {
            return None;
        }
        (at, byte) = skip(at + 1)?;
    }
    (byte == b'{').then_some(at)
}

/// Counted in groups that fit a byte, which compiles to vector instructions.
fn structural_characters(text: &[u8]) -> u64 {
    let is_structural = |byte: &u8| u8::from(matches!(byte, b'{' | b'[' | b','));
    let of_group = |group: &[u8]| group.iter().map(is_structural).fold(0, u8::wrapping_add);
    text.chunks(usize::from(u8::MAX)).map(|group| u64::from(of_group(group))).sum()
}

/// The path of the value at a byte of JSON text, such as `spec.containers[0].name`.
pub(super) fn path_at(text: &[u8], offset: usize) -> String {
    enum Level {
        Member(String),
        Element(usize),
    }
    let mut levels: Vec<Level> = Vec::new();
    let mut at = 0;
    let mut key: Option<String> = None;
    while at < offset
        && let Some(byte) = text.get(at)
    {
        match byte {
            b'"' => {
                let end = string_end(text, at);
                if let (Some(Level::Member(name)), None) = (levels.last_mut(), &key) {
                    let quoted = text.get(at..end).unwrap_or_default();
                    *name = serde_json::from_slice(quoted).unwrap_or_default();
                    key = Some(String::new());
                }
                at = end;
                continue;
            }
            b'{' => {
                levels.push(Level::Member(String::new()));
                key = None;
            }
            b'[' => levels.push(Level::Element(0)),
            b'}' | b']' => {
                levels.pop();
                key = Some(String::new());
            }
            b',' => match levels.last_mut() {
                Some(Level::Element(index)) => *index += 1,
                Some(Level::Member(_)) | None => key = None,
            },
            _ => {}
        }
        at += 1;
    }
    let mut path = String::new();
    for level in levels {
        match level {
            Level::Member(name) if path.is_empty() => path = name,
            Level::Member(name) => path = format!("{path}.{name}"),
            Level::Element(index) => path = format!("{path}[{index}]"),
        }
    }
    path.trim_end_matches('.').to_owned()
}

fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_extracted_whole() {
        let text = br#" { "a" : [1, {"b":"}\"]"} , null ] , "c":"x" } "#;
        let mut scanner = Scanner::new(&text[..], Limits::default());
        let mut out = Vec::new();
        let (mut members, mut elements) = (true, true);
        scanner.take(b'{', "`{`").unwrap();
        assert_eq!(scanner.next_key(&mut members).unwrap().as_deref(), Some("a"));
        scanner.take(b'[', "`[`").unwrap();
        let mut seen = Vec::new();
        while scanner.next_element(&mut elements).unwrap() {
            scanner.value(&mut out).unwrap();
            seen.push(String::from_utf8(out.clone()).unwrap());
        }
        assert_eq!(seen, ["1", r#"{"b":"}\"]"}"#, "null"]);
        assert_eq!(scanner.next_key(&mut members).unwrap().as_deref(), Some("c"));
        scanner.value(&mut out).unwrap();
        assert_eq!(scanner.next_key(&mut members).unwrap(), None);
        assert_eq!(scanner.peek().unwrap(), None);
    }

    #[test]
    fn limits_stop_the_scan() {
        let deep = "[".repeat(1000);
        let limits = Limits { tokens: 100, ..Limits::default() };
        let error = Scanner::new(deep.as_bytes(), limits).value(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("more than 100 values"), "{error}");
        let limits = Limits { value_bytes: 10, ..Limits::default() };
        let error = Scanner::new(&br#""0123456789abcdef""#[..], limits).value(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("more than 10 bytes in one value"), "{error}");
        let long = vec![b' '; 300_000];
        let limits = Limits { bytes: 100_000, ..Limits::default() };
        let error = Scanner::new(&long[..], limits).peek().unwrap_err();
        assert!(error.to_string().contains("more than 100000 bytes"), "{error}");
    }

    #[test]
    fn path_of_a_byte_is_found() {
        let text = br#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a"},{"name":7}]}}"#;
        let offset = text.iter().position(|b| *b == b'7').unwrap();
        assert_eq!(path_at(text, offset), "spec.containers[1].name");
        assert_eq!(path_at(text, 0), "");
        assert_eq!(path_at(b"{\"a\":[", 100), "a[0]");
    }
}
