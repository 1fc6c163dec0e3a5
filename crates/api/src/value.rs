//! Compact field types (text, lists, maps, quantities, times) with the lenient decoding of Kubernetes.
//!
//! `null` decodes as empty and a quantity may be a number. An invalid quantity is kept as text, so that it can be
//! reported on its object instead of failing the whole list. Values are compact because most pods have dozens.

use kai_units::{Quantity, Timestamp};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

/// Decodes `null` as the empty value.
///
/// Go writes a nil list or map without `omitempty` as `null`, so snapshots contain it where a list is meant.
pub fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Text; `null` is empty.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text(Box<str>);

impl Text {
    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// A copy of the text. Unlike `to_string` it goes through no formatter.
    pub fn to_text(&self) -> String {
        String::from(&*self.0)
    }
    /// The text, or `None` if it is empty.
    pub fn some(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(&*self.0)
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}
impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}
impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into_boxed_str())
    }
}
impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}
impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.into()))
            }
            fn visit_string<E>(self, text: String) -> Result<Text, E> {
                Ok(Text(text.into_boxed_str()))
            }
            fn visit_unit<E>(self) -> Result<Text, E> {
                Ok(Text::default())
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

/// A list; `null` is empty.
#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct List<T>(Box<[T]>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}
impl<T> Deref for List<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}
impl<T> From<Vec<T>> for List<T> {
    fn from(items: Vec<T>) -> Self {
        Self(items.into_boxed_slice())
    }
}
impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}
impl<T> List<T> {
    /// The items, owned.
    pub fn into_vec(self) -> Vec<T> {
        self.0.into_vec()
    }
    /// The items, mutably.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.0.iter_mut()
    }
}
impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
impl<'a, T> IntoIterator for &'a mut List<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}
impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
            type Value = List<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let Some(first) = seq.next_element()? else { return Ok(List::default()) };
                // Most lists have one item, and the space of a list is its exact size.
                let mut items = Vec::with_capacity(1);
                items.push(first);
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(items.into())
            }
            fn visit_unit<E>(self) -> Result<List<T>, E> {
                Ok(List::default())
            }
        }
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

/// A map from text to values, sorted by key; `null` is empty and a later duplicate wins.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Pairs<V>(Box<[(Text, V)]>);

/// Labels or annotations.
pub type Labels = Pairs<Text>;
/// Quantities by resource name.
pub type Resources = Pairs<Amount>;

impl<V> Pairs<V> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&V> {
        /// Up to this many keys a linear search, which mostly compares lengths, is faster than a binary search.
        const FEW: usize = 24;
        if self.0.len() <= FEW {
            return self.0.iter().find(|(k, _)| **k == *key).map(|(_, value)| value);
        }
        self.0.get(self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?).map(|(_, value)| value)
    }
    /// Keys and values in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &V)> {
        self.0.iter().map(|(k, v)| (&**k, v))
    }
    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Only the pairs whose key passes.
    #[must_use]
    pub fn kept(self, keep: impl Fn(&str) -> bool) -> Self {
        Self(self.0.into_vec().into_iter().filter(|(k, _)| keep(k)).collect())
    }
}
impl<V> Default for Pairs<V> {
    fn default() -> Self {
        Self(Box::default())
    }
}
/// Pairs before they are sorted. Nearly all maps fit the stack, so that the space of a map is allocated once.
type Unsorted<V> = SmallVec<[(Text, V); 8]>;

impl<V> Pairs<V> {
    fn sorted(mut pairs: Unsorted<V>) -> Self {
        if pairs.is_sorted_by(|one, next| one.0 < next.0) {
            return Self(pairs.into_boxed_slice());
        }
        // A stable sort keeps the order of duplicates, of which the last one is used.
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        let mut unique: Vec<(Text, V)> = Vec::with_capacity(pairs.len());
        for pair in pairs {
            match unique.last_mut() {
                Some(last) if last.0 == pair.0 => *last = pair,
                Some(_) | None => unique.push(pair),
            }
        }
        Self(unique.into_boxed_slice())
    }
}
impl<K: Into<Text>, V> FromIterator<(K, V)> for Pairs<V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self::sorted(pairs.into_iter().map(|(k, v)| (k.into(), v)).collect())
    }
}
impl<V: fmt::Debug> fmt::Debug for Pairs<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
impl<V: Serialize> Serialize for Pairs<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<V> {
            type Value = Pairs<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<V>, A::Error> {
                let mut pairs = Unsorted::new();
                while let Some(pair) = map.next_entry::<Text, V>()? {
                    pairs.push(pair);
                }
                Ok(Pairs::sorted(pairs))
            }
            fn visit_unit<E>(self) -> Result<Pairs<V>, E> {
                Ok(Pairs::default())
            }
        }
        deserializer.deserialize_any(PairsVisitor(PhantomData))
    }
}

/// A quantity of an object: exact, or the text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Amount {
    /// A valid quantity.
    Exact(Quantity),
    /// Text that is not a quantity.
    Bad(Box<str>),
}

impl Default for Amount {
    fn default() -> Self {
        Self::Exact(Quantity::default())
    }
}
impl From<&str> for Amount {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Bad(text.into()), Self::Exact)
    }
}
impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Exact(quantity) => serializer.collect_str(quantity),
            Self::Bad(text) => serializer.serialize_str(text),
        }
    }
}
impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AmountVisitor;
        impl Visitor<'_> for AmountVisitor {
            type Value = Amount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }
            fn visit_str<E>(self, text: &str) -> Result<Amount, E> {
                Ok(text.into())
            }
            fn visit_i64<E>(self, units: i64) -> Result<Amount, E> {
                Ok(Amount::Exact(Quantity::from_units(units)))
            }
            fn visit_u64<E>(self, units: u64) -> Result<Amount, E> {
                Ok(units.to_string().as_str().into())
            }
            fn visit_f64<E>(self, number: f64) -> Result<Amount, E> {
                Ok(number.to_string().as_str().into())
            }
            fn visit_unit<E>(self) -> Result<Amount, E> {
                Ok(Amount::default())
            }
        }
        deserializer.deserialize_any(AmountVisitor)
    }
}

/// A point in time; `null` is the epoch, which Kubernetes never writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub Timestamp);

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}
impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Rejects invalid text in the visitor, so that the error has line and column.
        struct StampVisitor;
        impl Visitor<'_> for StampVisitor {
            type Value = Stamp;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Stamp, E> {
                text.parse().map(Stamp).map_err(E::custom)
            }
            fn visit_unit<E>(self) -> Result<Stamp, E> {
                Ok(Stamp::default())
            }
        }
        deserializer.deserialize_any(StampVisitor)
    }
}
