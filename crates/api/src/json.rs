//! How the custom resources read the odder corners of JSON.

use serde::{
    Deserialize, Deserializer,
    de::{IntoDeserializer, value},
};

/// Reads a word that is not among the known ones as absent.
///
/// The API server refuses such words, but an object stored before it did must not stop a watch.
pub(crate) fn known_or_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(word.and_then(|word| {
        let word: value::StringDeserializer<value::Error> = word.into_deserializer();
        T::deserialize(word).ok()
    }))
}
