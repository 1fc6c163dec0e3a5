//! Reports JSON syntax errors with the messages of Go's `encoding/json`.

/// The first syntax error; `None` for valid JSON.
pub fn syntax_error(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner { text, at: 0 };
    let scanned = scanner.value("looking for beginning of value", 0).and_then(|()| {
        scanner.skip_space();
        match scanner.peek() {
            None => Ok(()),
            Some(byte) => Err(unexpected(byte, "after top-level value")),
        }
    });
    scanned.err()
}

/// Limit of nesting.
const DEPTH_MAX: usize = 500;
const END: &str = "unexpected end of JSON input";

fn unexpected(byte: u8, context: &str) -> String {
    let shown = match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\n' => "'\\n'".to_owned(),
        b'\t' => "'\\t'".to_owned(),
        b'\r' => "'\\r'".to_owned(),
        0x80..=0x9f => format!("'\\u{:04x}'", u32::from(byte)),
        0x00..=0x1f | 0x7f => format!("'\\x{byte:02x}'"),
        0x20..=0x7e | 0xa0..=0xff => format!("'{}'", char::from(byte)),
    };
    format!("invalid character {shown} {context}")
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, String> {
        let byte = self.peek().ok_or_else(|| END.to_owned())?;
        self.at += 1;
        Ok(byte)
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn value(&mut self, context: &str, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err("exceeded max depth".to_owned());
        }
        self.skip_space();
        match self.next()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            byte @ (b'-' | b'0'..=b'9') => self.number(byte),
            byte => Err(unexpected(byte, context)),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), String> {
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.skip_space();
            match self.next()? {
                b'"' => self.string()?,
                byte => return Err(unexpected(byte, "looking for beginning of object key string")),
            }
            self.skip_space();
            match self.next()? {
                b':' => {}
                byte => return Err(unexpected(byte, "after object key")),
            }
            self.value("looking for beginning of value", depth + 1)?;
            self.skip_space();
            match self.next()? {
                b',' => {}
                b'}' => return Ok(()),
                byte => return Err(unexpected(byte, "after object key:value pair")),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), String> {
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value("looking for beginning of value", depth + 1)?;
            self.skip_space();
            match self.next()? {
                b',' => {}
                b']' => return Ok(()),
                byte => return Err(unexpected(byte, "after array element")),
            }
        }
    }

    fn string(&mut self) -> Result<(), String> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next()?;
                            if !byte.is_ascii_hexdigit() {
                                return Err(unexpected(byte, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    byte => return Err(unexpected(byte, "in string escape code")),
                },
                byte if byte < 0x20 => return Err(unexpected(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != expected {
                let context = format!("in literal {word} (expecting '{}')", char::from(expected));
                return Err(unexpected(byte, &context));
            }
        }
        Ok(())
    }

    fn number(&mut self, first: u8) -> Result<(), String> {
        let mut digit = first;
        if first == b'-' {
            digit = self.next()?;
            if !digit.is_ascii_digit() {
                return Err(unexpected(digit, "in numeric literal"));
            }
        }
        if digit != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.one_digit("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.one_digit("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn one_digit(&mut self, context: &str) -> Result<(), String> {
        let byte = self.next()?;
        if !byte.is_ascii_digit() {
            return Err(unexpected(byte, context));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_errors_equal_go() {
        let cases = [
            ("{not json", Some("invalid character 'n' looking for beginning of object key string")),
            ("{", Some("unexpected end of JSON input")),
            ("", Some("unexpected end of JSON input")),
            ("{} {}", Some("invalid character '{' after top-level value")),
            ("[1 2]", Some("invalid character '2' after array element")),
            ("{\"a\" 1}", Some("invalid character '1' after object key")),
            ("{\"a\": 1 \"b\"}", Some("invalid character '\"' after object key:value pair")),
            ("trux", Some("invalid character 'x' in literal true (expecting 'e')")),
            ("\"\\x\"", Some("invalid character 'x' in string escape code")),
            ("1.x", Some("invalid character 'x' after decimal point in numeric literal")),
            ("{\"a\": [1, -2.5e+3, null, \"b\\u00e9\"]}", None),
        ];
        for (text, expected) in cases {
            assert_eq!(syntax_error(text.as_bytes()).as_deref(), expected, "{text}");
        }
    }
}
