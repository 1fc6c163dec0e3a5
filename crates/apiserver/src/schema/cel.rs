//! Evaluates CEL expressions over values of an object, with the types and names of KEP-2876.
//!
//! Strings with the formats `date-time`, `duration` and `byte` are timestamps, durations and bytes in CEL. Field names
//! that are not identifiers are escaped (`__dash__`), map keys are not.

use super::validate::Old;
use super::{Schema, Type};
use base64::Engine as _;
use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, Program, Value as Cel};
use serde_json::Value;
use std::sync::Arc;

/// Reserved words of CEL, which are escaped as field names.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Compiles an expression; the error is returned to the author of the rule.
pub(super) fn compile(source: &str) -> Result<Program, String> {
    Program::compile(source).map_err(|error| error.to_string().trim().to_owned())
}

/// The first field of `self` that an expression names and the schema does not declare.
///
/// Only chains of names that start with `self` are checked; other mismatches fail when the rule runs.
pub(super) fn undefined_field(source: &str, schema: &Value) -> Option<String> {
    let plain = without_texts(source);
    let bytes = plain.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    for (at, _) in plain.match_indices("self.") {
        let inside = at > 0 && (is_word(bytes[at - 1]) || bytes[at - 1] == b'.');
        if inside {
            continue;
        }
        let mut place = schema;
        let mut rest = &plain[at + "self".len()..];
        while let Some(after) = rest.strip_prefix('.') {
            let end = after.bytes().position(|byte| !is_word(byte)).unwrap_or(after.len());
            let (name, next) = after.split_at(end);
            let fields = place.get("properties").and_then(Value::as_object);
            let open = place.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
                || place.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
            let Some(fields) = fields.filter(|_| !open && !next.trim_start().starts_with('(')) else { break };
            match fields.iter().find(|(known, _)| escape(known) == name) {
                Some((_, field)) => place = field,
                None if ["apiVersion", "kind", "metadata"].contains(&name) => break,
                None => return Some(name.to_owned()),
            }
            rest = next;
        }
    }
    None
}

/// The expression with the contents of its string literals blanked.
fn without_texts(source: &str) -> String {
    let mut plain = String::with_capacity(source.len());
    let mut quote: Option<char> = None;
    let mut escaped = false;
    for c in source.chars() {
        let blank = quote.is_some() && (escaped || Some(c) != quote);
        plain.push(if blank { ' ' } else { c });
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(own) if own == c => quote = None,
            None if matches!(c, '\'' | '"') => quote = Some(c),
            Some(_) | None => {}
        }
    }
    plain
}

/// The variables of a rule: `self` and `oldSelf`.
pub(super) struct Scope<'a> {
    plain: Context<'a>,
    optional: Context<'a>,
}

impl Scope<'_> {
    pub(super) fn new(schema: &Schema, value: &Value, old: Old<'_>) -> Self {
        let new = of_json(schema, value);
        let old = old.value().map(|old| of_json(schema, old));
        let mut plain = Context::default().with_all();
        plain.add_variable_from_value("self", new.clone());
        plain.add_variable_from_value("oldSelf", old.clone().unwrap_or(Cel::Null));
        let mut optional = Context::default().with_all();
        optional.add_variable_from_value("self", new);
        let old = old.map_or_else(OptionalValue::none, OptionalValue::of);
        optional.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
        Self { plain, optional }
    }

    pub(super) fn run(&self, program: &Program, optional_old: bool) -> Result<Cel, String> {
        let context = if optional_old { &self.optional } else { &self.plain };
        program.execute(context).map_err(|error| message(&error))
    }

    /// The string result of an expression; `None` if it fails, is empty or has line breaks.
    pub(super) fn text(&self, program: &Program) -> Option<String> {
        match program.execute(&self.plain) {
            Ok(Cel::String(text)) => {
                let text = text.trim();
                (!text.is_empty() && !text.contains('\n')).then(|| text.to_owned())
            }
            Ok(_) | Err(_) => None,
        }
    }
}

/// Rewords an evaluation error as kube-apiserver reports it.
fn message(error: &ExecutionError) -> String {
    let text = error.to_string();
    match text.split_once(':') {
        Some(("No such key", key)) => format!("no such key:{key}"),
        Some(("Index out of bounds", index)) => format!("index out of bounds:{index}"),
        _ if text == "No such overload" => "no such overload".to_owned(),
        _ => text,
    }
}

fn of_json(schema: &Schema, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match (number.as_i64(), schema.kind) {
            (Some(whole), Type::Number) => Cel::Float(whole as f64),
            (Some(whole), _) => Cel::Int(whole),
            (None, _) => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => of_text(schema, text),
        Value::Array(elements) => {
            Cel::List(Arc::new(elements.iter().map(|element| of_json(schema.element(), element)).collect()))
        }
        Value::Object(fields) => {
            let entries = fields.iter().map(|(name, value)| {
                let field = schema.field(name).unwrap_or(Schema::untyped());
                let name = if schema.properties.contains_key(name) { escape(name) } else { name.clone() };
                (Key::String(Arc::new(name)), of_json(field, value))
            });
            Cel::Map(Map { map: Arc::new(entries.collect()) })
        }
    }
}

fn of_text(schema: &Schema, text: &str) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    if schema.kind != Type::String {
        return plain();
    }
    match schema.format.as_deref() {
        Some("date-time" | "date") => literal("timestamp", text).unwrap_or_else(plain),
        Some("duration") => literal("duration", text).unwrap_or_else(plain),
        Some("byte") => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_or_else(|_| plain(), |bytes| Cel::Bytes(Arc::new(bytes))),
        _ => plain(),
    }
}

/// A timestamp or duration, converted by CEL itself for identical semantics.
fn literal(function: &str, text: &str) -> Option<Cel> {
    let program = Program::compile(&format!("{function}(text)")).ok()?;
    let text = if function == "timestamp" && text.len() == 10 {
        format!("{text}T00:00:00Z")
    } else {
        text.to_owned()
    };
    let mut context = Context::default();
    context.add_variable_from_value("text", Cel::String(Arc::new(text)));
    program.execute(&context).ok()
}

/// Escapes a field name as an identifier.
fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(schema: &Schema, value: &Value, rule: &str) -> Result<Cel, String> {
        Scope::new(schema, value, Old::None).run(&compile(rule).unwrap(), false)
    }

    #[test]
    fn scalars_lists_and_maps_are_converted() {
        let value = json!({"a": 1, "b": "x", "l": [1, 2, 3], "m": {"k": "v"}});
        for rule in [
            "self.a == 1",
            "self.a + 1 > 1 && self.b.startsWith('x')",
            "self.l.all(x, x > 0) && self.l.exists_one(x, x == 2)",
            "'k' in self.m && self.m['k'] == 'v'",
            "has(self.a) && !has(self.z)",
            "size(self.l) == 3 && self.l.sum() == 6",
            "self.b.matches('^x$')",
            "self.m.all(k, self.m[k] == 'v')",
            "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
        ] {
            assert_eq!(holds(Schema::untyped(), &value, rule), Ok(Cel::Bool(true)), "{rule}");
        }
        assert_eq!(holds(Schema::untyped(), &value, "self.z == 1"), Err("no such key: z".to_owned()));
    }

    #[test]
    fn field_names_are_escaped_as_identifiers() {
        assert_eq!(escape("a-b.c/d"), "a__dash__b__dot__c__slash__d");
        assert_eq!(escape("in"), "__in__");
        assert_eq!(escape("a__b"), "a__underscores__b");
        assert_eq!(escape("a_b"), "a_b");
    }

    #[test]
    fn formats_determine_cel_types() {
        let schema = |format: &str| Schema {
            kind: Type::String,
            format: Some(format.to_owned()),
            ..Schema::default()
        };
        let time = json!("2026-01-02T03:04:05Z");
        assert_eq!(holds(&schema("date-time"), &time, "self.getFullYear() == 2026"), Ok(Cel::Bool(true)));
        assert_eq!(holds(&schema("duration"), &json!("1h30m"), "self > duration('1h')"), Ok(Cel::Bool(true)));
        assert_eq!(holds(&schema("byte"), &json!("aGk="), "size(self) == 2"), Ok(Cel::Bool(true)));
    }

    #[test]
    fn undeclared_fields_are_found() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"b-c": {"type": "string"}}},
            "l": {"type": "array"}, "o": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {}},
        }});
        for fine in [
            "self.a.b__dash__c == 'self.z'",
            "self.l.all(x, x.y > 0)",
            "has(self.a) && self.o.anything == 1",
            "oldSelf.z == 1 || self.metadata.name == 'x'",
            "self.size() > 0",
        ] {
            assert_eq!(undefined_field(fine, &schema), None, "{fine}");
        }
        assert_eq!(undefined_field("self.a.d == 1", &schema).as_deref(), Some("d"));
        assert_eq!(undefined_field("true && self.z", &schema).as_deref(), Some("z"));
    }

    #[test]
    fn malformed_expressions_are_rejected() {
        assert!(compile("self.a >").is_err());
        assert!(compile("self.a > 1").is_ok());
    }
}
