//! Applies the JSON patches that the webhooks answer with.

use anyhow::{Context, Result, bail};
use serde_json::Value;

pub(super) fn apply(object: &mut Value, patch: &Value) -> Result<()> {
    for operation in patch.as_array().context("the patch is no list")? {
        let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or_default();
        let path = text("path");
        let (parent, token) =
            path.rsplit_once('/').with_context(|| format!("path `{path}` has no parent"))?;
        let token = token.replace("~1", "/").replace("~0", "~");
        let parent = object.pointer_mut(parent).with_context(|| format!("`{parent}` does not exist"))?;
        let value = operation.get("value").cloned().unwrap_or_default();
        match (parent, text("op")) {
            (Value::Object(fields), "add" | "replace") => {
                fields.insert(token, value);
            }
            (Value::Object(fields), "remove") => {
                fields.remove(&token).with_context(|| format!("`{path}` does not exist"))?;
            }
            (Value::Array(items), "replace") => {
                let index: usize = token.parse()?;
                *items.get_mut(index).with_context(|| format!("`{path}` does not exist"))? = value;
            }
            (_, op) => bail!("operation `{op}` on `{path}` is not expected"),
        }
    }
    Ok(())
}
