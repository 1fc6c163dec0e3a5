//! Members of an object in a simulator's input: found in any case, absent where they are `null`.

use anyhow::{Result, anyhow};
use serde_json::{Map, Value};

/// Numbers beyond this are cut: what is larger is no longer exact.
const LARGEST: f64 = 9e15;

/// The members of one object, and where it stands in the file.
pub(super) struct Fields<'a> {
    members: &'a Map<String, Value>,
    place: String,
}

impl<'a> Fields<'a> {
    /// An object that stands at a place such as `` `file`, queues[0] ``.
    pub(super) fn of(value: &'a Value, place: impl Into<String>) -> Result<Self> {
        let place = place.into();
        match value.as_object() {
            Some(members) => Ok(Self { members, place }),
            None => Err(anyhow!("{place}: expected an object; hint: compare with the examples")),
        }
    }

    /// A member.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        let exact = self.members.get(name);
        let found = exact
            .or_else(|| self.members.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, v)| v));
        found.filter(|value| !value.is_null())
    }

    /// A number, cut at what can be counted with.
    pub(super) fn number(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().ok_or_else(|| self.error(name, "a number"))?;
        Ok(Some(number.clamp(-LARGEST, LARGEST)))
    }

    /// A whole number that is not negative.
    pub(super) fn count(&self, name: &str) -> Result<Option<u32>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        count.map(Some).ok_or_else(|| self.error(name, "a whole number, 0 or more"))
    }

    /// Text; empty where it is absent.
    pub(super) fn text(&self, name: &str) -> Result<&'a str> {
        let Some(value) = self.get(name) else { return Ok("") };
        value.as_str().ok_or_else(|| self.error(name, "text"))
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

    /// An object.
    pub(super) fn object(&self, name: &str) -> Result<Option<Fields<'a>>> {
        self.get(name).map(|value| Fields::of(value, format!("{}, {name}", self.place))).transpose()
    }

    /// Members that are objects, by name.
    pub(super) fn each(&self) -> impl Iterator<Item = Result<(&'a str, Fields<'a>)>> + '_ {
        self.members
            .iter()
            .map(|(name, value)| Ok((name.as_str(), Fields::of(value, format!("{}, {name}", self.place))?)))
    }

    /// A member that is not what it should be.
    pub(super) fn error(&self, name: &str, expected: &str) -> anyhow::Error {
        anyhow!("{}: `{name}` is not {expected}; hint: write {expected}", self.place)
    }
}
