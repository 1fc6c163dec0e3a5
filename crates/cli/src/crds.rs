//! `kai crds`: prints the custom resource definitions as YAML.

use crate::args;
use anyhow::{Result, bail};
use kai_api::crds;

pub(crate) fn run(args: &args::Crds) -> Result<String> {
    let Some(wanted) = &args.name else { return Ok(crds::crds_yaml()) };
    let all = crds::crds();
    let found = all.iter().find(|crd| {
        let names = &crd.spec.names;
        let full = crd.metadata.name.as_deref().unwrap_or_default();
        [full, &names.plural, &names.kind].iter().any(|name| name.eq_ignore_ascii_case(wanted))
    });
    let Some(crd) = found else {
        let known: Vec<&str> = all.iter().map(|crd| crd.spec.names.plural.as_str()).collect();
        bail!("custom resource definition `{wanted}` not found; hint: it is one of {}", known.join(", "));
    };
    Ok(crds::crd_yaml(crd))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(name: Option<&str>) -> Result<String> {
        run(&args::Crds { name: name.map(str::to_owned) })
    }

    #[test]
    fn definition_is_found_by_kind_plural_and_full_name() {
        let by_plural = printed(Some("queues")).expect("the definition exists");
        assert!(by_plural.contains("name: queues.scheduling.run.ai"), "{by_plural}");
        for name in ["Queue", "queues.scheduling.run.ai"] {
            assert_eq!(printed(Some(name)).expect("the definition exists"), by_plural);
        }
    }

    #[test]
    fn all_definitions_are_printed_as_one_stream() {
        let all = printed(None).expect("the definitions exist");
        assert_eq!(all.matches("kind: CustomResourceDefinition").count(), 6);
    }

    #[test]
    fn unknown_name_is_rejected_with_the_known_ones() {
        let error = printed(Some("quotas")).expect_err("there is no such kind").to_string();
        assert!(error.contains("`quotas`") && error.contains("podgroups"), "{error}");
    }
}
