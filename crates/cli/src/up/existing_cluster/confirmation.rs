//! Confirmation before objects are created in an existing cluster.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirmation {
    /// By a flag.
    Given,
    /// By a prompt on the terminal.
    Prompt,
    /// Without a flag and without a terminal.
    Unavailable,
}

impl Confirmation {
    pub(super) fn of(given: bool) -> Self {
        match given {
            true => Self::Given,
            false if crate::is_terminal(&std::io::stdin()) => Self::Prompt,
            false => Self::Unavailable,
        }
    }

    pub(super) fn get(self, question: &str) -> Result<bool> {
        match self {
            Self::Given => Ok(true),
            Self::Prompt => prompt(question, &mut std::io::stdin().lock(), &mut std::io::stdout()),
            Self::Unavailable => Ok(false),
        }
    }

    /// Fails without confirmation.
    pub(super) fn require(self, question: &str) -> Result<()> {
        if self == Self::Unavailable {
            bail!(
                "no objects were created: standard input is not a terminal for the prompt; hint: --yes creates the \
                 objects listed above"
            );
        }
        if !self.get(question)? {
            bail!(
                "no objects were created, and no component was started; hint: the objects listed above are required"
            );
        }
        Ok(())
    }
}

/// Prompts until the answer is yes or no; the end of the input is a no.
fn prompt(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> Result<bool> {
    loop {
        write!(output, "{question} [y/N] ")
            .and_then(|()| output.flush())
            .context("cannot write the prompt")?;
        let mut line = String::new();
        let read = input.read_line(&mut line).context("cannot read the answer")?;
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            "" => {
                if read == 0 {
                    // The shell continues on a new line.
                    writeln!(output).context("cannot write the prompt")?;
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
        let answer = prompt("Really?", &mut typed.as_bytes(), &mut output).expect("memory can be written");
        (answer, String::from_utf8(output).expect("it is text"))
    }

    #[test]
    fn only_yes_confirms() {
        assert_eq!(answered("y\n"), (true, "Really? [y/N] ".to_owned()));
        assert!(answered("YES\n").0);
        assert!(!answered("no\n").0 && !answered("\n").0 && !answered("").0);
    }

    #[test]
    fn other_answers_repeat_the_prompt() {
        assert_eq!(answered("what\ny\n"), (true, "Really? [y/N] Really? [y/N] ".to_owned()));
    }
}
