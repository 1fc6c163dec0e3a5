//! Asks before anything is made in somebody's cluster.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, IsTerminal as _, Write};

/// Who says whether something may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consent {
    /// It was given on the command line.
    Given,
    /// Somebody at the terminal is asked.
    Ask,
    /// Nobody can be asked, and nothing was given.
    Nobody,
}

impl Consent {
    /// By what was given on the command line.
    pub(super) fn of(given: bool) -> Self {
        match given {
            true => Self::Given,
            false if std::io::stdin().is_terminal() => Self::Ask,
            false => Self::Nobody,
        }
    }

    /// Whether it may be done.
    pub(super) fn to(self, question: &str) -> Result<bool> {
        match self {
            Self::Given => Ok(true),
            Self::Ask => ask(question, &mut std::io::stdin().lock(), &mut std::io::stdout()),
            Self::Nobody => Ok(false),
        }
    }

    /// Fails unless it may be done.
    pub(super) fn required_to(self, question: &str) -> Result<()> {
        if self == Self::Nobody {
            bail!(
                "nothing was made: the standard input is no terminal on which to ask; hint: --yes makes what is listed \
                 above"
            );
        }
        if !self.to(question)? {
            bail!("nothing was made, and nothing runs; hint: it needs what is listed above");
        }
        Ok(())
    }
}

/// Asks until the answer is yes or no; the end of the input is a no.
fn ask(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> Result<bool> {
    loop {
        write!(output, "{question} [y/N] ").and_then(|()| output.flush()).context("cannot ask")?;
        let mut line = String::new();
        let read = input.read_line(&mut line).context("cannot read the answer")?;
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            "" => {
                if read == 0 {
                    // The shell's prompt does not belong on this line.
                    writeln!(output).context("cannot ask")?;
                }
                return Ok(false);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(typed: &str) -> (bool, String) {
        let mut output = Vec::new();
        let answer = ask("Really?", &mut typed.as_bytes(), &mut output).expect("memory can be written");
        (answer, String::from_utf8(output).expect("it is text"))
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        assert_eq!(answered("y\n"), (true, "Really? [y/N] ".to_owned()));
        assert!(answered("YES\n").0);
        assert!(!answered("no\n").0 && !answered("\n").0 && !answered("").0);
    }

    #[test]
    fn a_strange_answer_is_asked_again() {
        assert_eq!(answered("what\ny\n"), (true, "Really? [y/N] Really? [y/N] ".to_owned()));
    }
}
