//! Fields of an object in the input of KAI's simulators: names match in any case, `null` counts as absent.

use anyhow::{Result, anyhow};
use serde_json::{Map, Value};

/// Larger numbers are clamped: an `f64` does not hold them exactly.
const LARGEST: f64 = 9e15;

/// The fields of an object, and its position in the file.
pub(super) struct Fields<'a> {
    members: &'a Map<String, Value>,
    place: String,
}

impl<'a> Fields<'a> {
    /// `place` is used in errors, such as `` `file`, queues[0] ``.
    pub(super) fn of(value: &'a Value, place: impl Into<String>) -> Result<Self> {
        let place = place.into();
        match value.as_object() {
            Some(members) => Ok(Self { members, place }),
            None => Err(anyhow!("{place}: expected an object; hint: see `examples`")),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        let exact = self.members.get(name);
        let found = exact
            .or_else(|| self.members.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, v)| v));
        found.filter(|value| !value.is_null())
    }

    /// A number, clamped to `LARGEST`.
    pub(super) fn number(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().ok_or_else(|| self.error(name, "a number"))?;
        Ok(Some(number.clamp(-LARGEST, LARGEST)))
    }

    /// A non-negative integer.
    pub(super) fn count(&self, name: &str) -> Result<Option<u32>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        count.map(Some).ok_or_else(|| self.error(name, "a non-negative integer"))
    }

    /// A string; empty where it is absent.
    pub(super) fn text(&self, name: &str) -> Result<&'a str> {
        let Some(value) = self.get(name) else { return Ok("") };
        value.as_str().ok_or_else(|| self.error(name, "a string"))
    }

    /// A list of objects; empty where it is absent.
    pub(super) fn objects(&self, name: &str) -> Result<Vec<Fields<'a>>> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(|| self.error(name, "a list"))?;
        list.iter()
            .enumerate()
            .map(|(at, v)| Fields::of(v, format!("{}, {name}[{at}]", self.place)))
            .collect()
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<Fields<'a>>> {
        self.get(name).map(|value| Fields::of(value, format!("{}, {name}", self.place))).transpose()
    }

    /// Fields that are objects, by name.
    pub(super) fn each(&self) -> impl Iterator<Item = Result<(&'a str, Fields<'a>)>> + '_ {
        self.members
            .iter()
            .map(|(name, value)| Ok((name.as_str(), Fields::of(value, format!("{}, {name}", self.place))?)))
    }

    pub(super) fn error(&self, name: &str, expected: &str) -> anyhow::Error {
        anyhow!("{}: `{name}` is not {expected}; hint: write {expected}", self.place)
    }
}
