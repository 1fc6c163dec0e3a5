//! Formats decisions as sorted lines for comparison: `bind`, `pipeline`, `evict`.

use kai_engine::outcome::{Decision, Outcome};

pub(super) fn lines(outcome: &Outcome) -> String {
    let mut lines: Vec<String> = outcome.decisions.iter().map(line).collect();
    lines.sort_unstable();
    lines.into_iter().map(|line| line + "\n").collect()
}

fn line(decision: &Decision) -> String {
    match decision {
        Decision::Bind(bind) if bind.gpu_groups.is_empty() => format!("bind {} {}", bind.pod, bind.node),
        Decision::Bind(bind) => format!("bind {} {} {}", bind.pod, bind.node, bind.gpu_groups.join(",")),
        Decision::Pipeline { pod, node, .. } => format!("pipeline {pod} {node}"),
        Decision::Evict { pod, .. } => format!("evict {pod}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_engine::input::Key;
    use kai_engine::outcome::Bind;

    #[test]
    fn lines_are_sorted_and_name_gpu_groups() {
        let bind = |pod: &str, gpu_groups: Vec<String>| {
            let (pod, node) = (Key::new("ns", pod), "n1".to_owned());
            Decision::Bind(Box::new(Bind { pod, node, gpu_groups, ..Bind::default() }))
        };
        let decisions = vec![bind("b", vec![]), bind("a", vec!["g1".to_owned(), "g2".to_owned()])];
        let outcome = Outcome { decisions, ..Outcome::default() };
        assert_eq!(lines(&outcome), "bind ns/a n1 g1,g2\nbind ns/b n1\n");
    }
}
