//! Declares structs whose every field may be absent, as in the configuration resources.

/// Makes each field an `Option` that is left out of the JSON form while it is unset.
///
/// The declaration names the bare types; field attributes (documentation, `serde(rename)`, `schemars`) are kept.
macro_rules! all_optional {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident {
            $( $(#[$field_about:meta])* pub $field:ident: $type:ty, )*
        }
    )*) => {$(
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase", default)]
        $(#[$about])*
        pub struct $name {
            $(
                $(#[$field_about])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )*
        }
    )*};
}
pub(crate) use all_optional;
