//! Parses the string form of label selectors: tokens, then requirements separated by commas.
//!
//! `in` and `notin` are operators only where an operator is expected, so `in in (in)` is a valid selector.

#![expect(clippy::wildcard_enum_match_arm, reason = "a parser rejects every other token")]

use super::{Error, Operator, Requirement};
use crate::field::{self, Path};
use crate::names;

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    Open,
    Close,
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    Word(&'a str),
}

impl Token<'_> {
    fn text(&self) -> &str {
        match self {
            Token::End => "",
            Token::Open => "(",
            Token::Close => ")",
            Token::Comma => ",",
            Token::Not => "!",
            Token::Equals => "=",
            Token::DoubleEquals => "==",
            Token::NotEquals => "!=",
            Token::Greater => ">",
            Token::Less => "<",
            Token::Word(word) => word,
        }
    }
}

/// The requirements in source order.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, Error> {
    let mut parser = Parser { tokens: tokens(text), position: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::End => return Ok(requirements),
            Token::Word(_) | Token::Not => {
                let requirement = parser.requirement();
                requirements.push(
                    requirement
                        .map_err(|Error(text)| Error(format!("unable to parse requirement: {text}")))?,
                );
            }
            other => return Err(found(other, ", expected: !, identifier, or 'end of string'")),
        }
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Comma => {
                let next = parser.peek();
                if !matches!(next, Token::Word(_) | Token::Not) {
                    return Err(found(next, ", expected: identifier after ','"));
                }
            }
            other => return Err(found(other, ", expected: ',' or 'end of string'")),
        }
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.position).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, Error> {
        let mut token = self.next();
        let negated = token == Token::Not;
        if negated {
            token = self.next();
        }
        let Token::Word(key) = token else { return Err(found(token, ", expected: identifier")) };
        let faults = names::label_key(key);
        if !faults.is_empty() {
            return Err(Error(field::Error::invalid(&Path::ROOT, key, faults.join("; ")).to_string()));
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            Operator::Equals
            | Operator::NotEquals
            | Operator::GreaterThan
            | Operator::LessThan
            | Operator::Exists
            | Operator::DoesNotExist => vec![self.value()?],
        };
        Requirement::new(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, Error> {
        match self.next() {
            Token::Word("in") => Ok(Operator::In),
            Token::Word("notin") => Ok(Operator::NotIn),
            Token::Equals | Token::DoubleEquals => Ok(Operator::Equals),
            Token::NotEquals => Ok(Operator::NotEquals),
            Token::Greater => Ok(Operator::GreaterThan),
            Token::Less => Ok(Operator::LessThan),
            other => Err(found(other, &format!(", expected: {OPERATORS}"))),
        }
    }

    fn value(&mut self) -> Result<String, Error> {
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next() {
            Token::Word(word) => Ok(word.to_owned()),
            other => Err(found(other, ", expected: identifier")),
        }
    }

    /// `(a,b)`, where an empty place is the empty value: `()` and `(,a)` are lists.
    fn values(&mut self) -> Result<Vec<String>, Error> {
        let open = self.next();
        if open != Token::Open {
            return Err(found(open, " expected: '('"));
        }
        match self.peek() {
            Token::Close => {
                self.next();
                return Ok(vec![String::new()]);
            }
            Token::Word(_) | Token::Comma => {}
            other => return Err(found(other, ", expected: ',', ')' or identifier")),
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(word) => {
                    values.push(word.to_owned());
                    match self.peek() {
                        Token::Comma => {}
                        Token::Close => break,
                        other => return Err(found(other, ", expected: ',' or ')'")),
                    }
                }
                Token::Comma => {
                    let next = self.peek();
                    if values.is_empty() || matches!(next, Token::Close | Token::Comma) {
                        values.push(String::new());
                    }
                    if next == Token::Close {
                        break;
                    }
                }
                other => return Err(found(other, ", expected: ',', or identifier")),
            }
        }
        self.next();
        Ok(values)
    }
}

fn found(token: Token<'_>, rest: &str) -> Error {
    Error(format!("found '{}'{rest}", token.text()))
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        // A zero byte ends the text, as in the Go lexer.
        if rest.is_empty() || rest.starts_with('\0') {
            return tokens;
        }
        let (token, length) = if rest.starts_with(is_special) { special(rest) } else { word(rest) };
        tokens.push(token);
        rest = &rest[length..];
    }
}

fn word(rest: &str) -> (Token<'_>, usize) {
    let is_end = |c: char| is_special(c) || matches!(c, ' ' | '\t' | '\r' | '\n' | '\0');
    let end = rest.find(is_end).unwrap_or(rest.len());
    (Token::Word(&rest[..end]), end)
}

fn special(rest: &str) -> (Token<'_>, usize) {
    let double = match rest.get(..2) {
        Some("==") => Some(Token::DoubleEquals),
        Some("!=") => Some(Token::NotEquals),
        _ => None,
    };
    if let Some(token) = double {
        return (token, 2);
    }
    let token = match rest.as_bytes()[0] {
        b'=' => Token::Equals,
        b'!' => Token::Not,
        b'>' => Token::Greater,
        b'<' => Token::Less,
        b'(' => Token::Open,
        b')' => Token::Close,
        _ => Token::Comma,
    };
    (token, 1)
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}
