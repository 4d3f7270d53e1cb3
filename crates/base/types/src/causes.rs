//! Error texts that include their causes.

use core::error::Error;
use core::fmt;

/// Joins an error and its causes into one line. A cause that the error's own text already contains is not repeated.
#[derive(Clone, Copy, Debug)]
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = self.0.to_string();
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            if !told.contains(&text) {
                told.push_str(": ");
                told.push_str(&text);
            }
            next = cause.source();
        }
        f.write_str(&told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Told(&'static str, Option<Box<Told>>);

    impl fmt::Display for Told {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Told {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &dyn Error)
        }
    }

    fn told(texts: &[&'static str]) -> String {
        let mut error = None;
        for text in texts.iter().rev() {
            error = Some(Told(text, error.map(Box::new)));
        }
        error.map_or_else(String::new, |error| ErrorChain(&error).to_string())
    }

    #[test]
    fn each_cause_is_told_once() {
        assert_eq!(
            told(&[
                "token_file /x: cannot be read: no such file",
                "cannot be read: no such file",
                "no such file"
            ]),
            "token_file /x: cannot be read: no such file"
        );
        assert_eq!(
            told(&["the start", "the middle", "the end"]),
            "the start: the middle: the end"
        );
        assert_eq!(told(&["alone"]), "alone");
    }
}
