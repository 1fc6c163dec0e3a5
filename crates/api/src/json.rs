//! Lenient decoding of enumerations in custom resources.

use serde::{
    Deserialize, Deserializer,
    de::{IntoDeserializer, value},
};

/// Decodes an unknown enumeration value as absent.
///
/// The API server rejects such values, but an object stored under an older schema must not break a watch.
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
