//! The source of a rule set: the contents of its files and the settings that they are compiled with, as bytes. The files are
//! read on the control side; the bytes are compiled there, or in the process of a function.
//!
//! ```text
//!  bundle:    syntax, "refuse" or "accept" for fewer rules, list of variables, list of files
//!  list:      number of elements (u32), elements
//!  variable:  name, value
//!  file:      name, contents
//!  data file: rule file, name in the rule, contents; a list of them follows
//!  name, …:   size (u32), bytes        all numbers big-endian
//! ```

use std::fs::File;
use std::io::Read;
use std::path::Path;

use millrace_ips_rules::options::RuleOption;
use millrace_ips_rules::{Syntax, files, limits};
use millrace_nf::{InputFile, Settings, Source};

/// Limit of the bytes of all files.
const SIZE_MAX: usize = 512 << 20;

/// The files and settings of a rule set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bundle {
    pub(crate) syntax: Syntax,
    /// True if a set may replace one that has more than twice as many rules.
    pub(crate) accepts_fewer: bool,
    /// Names and values of variables, which take precedence over the variables of files.
    pub(crate) variables: Vec<(String, String)>,
    /// Names and contents of the files. Included files follow the files that include them.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// Files that options of rules name: the rule file, the name in the rule, and the contents.
    pub(crate) data: Vec<(String, String, Vec<u8>)>,
}

/// Reads the files that the settings of a hop name.
pub(crate) fn read(settings: &Settings) -> Result<Source, String> {
    let text = |error: millrace_nf::SettingError| error.to_string();
    let mut bundle = Bundle {
        syntax: settings.value("syntax", Syntax::Suricata).map_err(text)?,
        accepts_fewer: accepts_fewer(settings)?,
        variables: variables(settings)?,
        files: Vec::new(),
        data: Vec::new(),
    };
    let mut files = Vec::new();
    for path in settings.all("rules") {
        bundle.add(Path::new(path), 0, &mut files)?;
    }
    let folder = settings.one("data").map_err(text)?;
    bundle.add_data(folder.map(Path::new), &mut files);
    Ok(Source {
        bytes: bundle.to_bytes(),
        files,
    })
}

/// Returns the value of the setting `fewer_rules`.
pub(crate) fn accepts_fewer(settings: &Settings) -> Result<bool, String> {
    match settings.one("fewer_rules").map_err(|error| error.to_string())? {
        None | Some("refuse") => Ok(false),
        Some("accept") => Ok(true),
        Some(other) => Err(format!("`fewer_rules={other}`: expected refuse or accept")),
    }
}

/// Returns the variables that the settings name.
pub(crate) fn variables(settings: &Settings) -> Result<Vec<(String, String)>, String> {
    let pair = |text: &str| {
        let split = text.split_once('=');
        let (name, value) = split
            .ok_or_else(|| format!("`variable={text}`: expected NAME=VALUE, as in HOME_NET=10.0.0.0/8"))?;
        Ok((
            name.trim().trim_start_matches('$').to_owned(),
            value.trim().to_owned(),
        ))
    };
    let home = settings.one("home_net").map_err(|error| error.to_string())?;
    let home = home.map(|value| ("HOME_NET".to_owned(), value.to_owned()));
    let others = settings.all("variable").map(pair);
    home.into_iter().map(Ok).chain(others).collect()
}

impl Bundle {
    /// Adds a file and the files that it includes.
    fn add(&mut self, path: &Path, depth: usize, read: &mut Vec<InputFile>) -> Result<(), String> {
        let name = path.display().to_string();
        if depth > limits::INCLUDE_DEPTH {
            return Err(format!(
                "{name}: files include each other more than {} deep: expected no circle",
                limits::INCLUDE_DEPTH
            ));
        }
        if self.files.len() >= limits::FILES {
            return Err(format!(
                "{name}: more than {} files are included: expected each rule file to be included once",
                limits::FILES
            ));
        }
        read.push(InputFile::before_open(path));
        let mut text = Vec::new();
        File::open(path)
            // A file that never ends, such as a device, is refused because of its size.
            .and_then(|file| file.take(limits::FILE_SIZE as u64 + 1).read_to_end(&mut text))
            .map_err(|error| format!("{name} cannot be read: {error}"))?;
        let sum = self.files.iter().map(|(_, text)| text.len()).sum::<usize>() + text.len();
        if sum > SIZE_MAX {
            return Err(format!(
                "{name}: the rule files have more than {} MiB together",
                SIZE_MAX >> 20
            ));
        }
        let includes = includes(&text);
        self.files.push((name, text));
        for include in includes {
            self.add(&path.with_file_name(include), depth + 1, read)?;
        }
        Ok(())
    }

    /// Adds the files that options of rules name: beside the rule file, unless the name is absolute; those of sets that rules
    /// also write beneath `folder`, if it is given. The compiler refuses the rules whose files are not there.
    fn add_data(&mut self, folder: Option<&Path>, read: &mut Vec<InputFile>) {
        const KEYWORDS: [&[u8]; 3] = [b"dataset", b"datarep", b"filesha"];
        let mut sum: usize = self.files.iter().map(|(_, text)| text.len()).sum();
        for (file, text) in &self.files {
            let names_files = |line: &&[u8]| {
                let has = |keyword: &[u8]| line.windows(keyword.len()).any(|part| part == keyword);
                KEYWORDS.iter().any(|keyword| has(keyword)) || has(b"filemd5")
            };
            // Only the lines that may name a file are parsed: a file may have tens of thousands of rules.
            let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(names_files).collect();
            if lines.is_empty() {
                continue;
            }
            let parsed = files::parse(self.syntax, file, &lines.join(&b'\n'));
            let mut names: Vec<(String, bool)> = Vec::new();
            for rule in &parsed.rules {
                let found = rule.rule.options.iter().filter_map(RuleOption::data_file);
                names.extend(found.map(|(name, must_exist)| (name.to_owned(), must_exist)));
            }
            names.sort_unstable();
            names.dedup();
            for (name, must_exist) in names {
                let path = match folder.filter(|_| !must_exist) {
                    Some(folder) => folder.join(&name),
                    None => Path::new(file).with_file_name("").join(&name),
                };
                // A file that the function itself writes is no reason to load the rules again.
                if must_exist || folder.is_none() {
                    read.push(InputFile::before_open(&path));
                }
                let mut text = Vec::new();
                let opened = File::open(&path);
                let limited = opened.map(|file| file.take(limits::FILE_SIZE as u64 + 1));
                if limited.and_then(|mut file| file.read_to_end(&mut text)).is_ok()
                    && sum + text.len() <= SIZE_MAX
                {
                    sum += text.len();
                    self.data.push((file.clone(), name, text));
                }
            }
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let size: usize = self.files.iter().map(|(_, text)| text.len()).sum();
        let mut out = Vec::with_capacity(size + 1024);
        put(&mut out, self.syntax.to_string().as_bytes());
        put(&mut out, if self.accepts_fewer { b"accept" } else { b"refuse" });
        put_number(&mut out, self.variables.len());
        for (name, value) in &self.variables {
            put(&mut out, name.as_bytes());
            put(&mut out, value.as_bytes());
        }
        put_number(&mut out, self.files.len());
        for (name, text) in &self.files {
            put(&mut out, name.as_bytes());
            put(&mut out, text);
        }
        put_number(&mut out, self.data.len());
        for (file, name, text) in &self.data {
            put(&mut out, file.as_bytes());
            put(&mut out, name.as_bytes());
            put(&mut out, text);
        }
        out
    }

    /// Parses a bundle. Returns `None` if the bytes are no bundle.
    pub(crate) fn parse(mut bytes: &[u8]) -> Option<Bundle> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let input = &mut bytes;
        let syntax = text(take(input)?)?.parse().ok()?;
        let accepts_fewer = match take(input)? {
            b"accept" => true,
            b"refuse" => false,
            _ => return None,
        };
        let mut bundle = Bundle {
            syntax,
            accepts_fewer,
            variables: Vec::new(),
            files: Vec::new(),
            data: Vec::new(),
        };
        for _ in 0..take_number(input)? {
            bundle.variables.push((text(take(input)?)?, text(take(input)?)?));
        }
        for _ in 0..take_number(input)? {
            bundle.files.push((text(take(input)?)?, take(input)?.to_vec()));
        }
        for _ in 0..take_number(input)? {
            let (file, name) = (text(take(input)?)?, text(take(input)?)?);
            bundle.data.push((file, name, take(input)?.to_vec()));
        }
        input.is_empty().then_some(bundle)
    }
}

/// Returns the files that a file includes: each in a line that begins with `include`.
fn includes(text: &[u8]) -> Vec<String> {
    let lines = text.split(|byte| *byte == b'\n');
    let included = |line: &[u8]| {
        let rest = line.trim_ascii_start().strip_prefix(b"include")?;
        let name = rest.first()?.is_ascii_whitespace().then(|| rest.trim_ascii())?;
        let name = String::from_utf8_lossy(name).into_owned();
        (!name.is_empty()).then_some(name)
    };
    lines.filter_map(included).collect()
}

fn put_number(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&(number as u32).to_be_bytes());
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn take_number(input: &mut &[u8]) -> Option<u32> {
    let (number, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(u32::from_be_bytes(*number))
}

fn take<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = take_number(input)? as usize;
    let (bytes, rest) = input.split_at_checked(size)?;
    *input = rest;
    Some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_with_those_that_they_include_and_come_out_as_they_went_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a.rules"), "include b.rules\n# include c.rules\n").unwrap();
        std::fs::write(path("b.rules"), "alert ip any any -> any any (sid:1;)").unwrap();
        let rules = format!("rules={}", path("a.rules").display());
        let settings = Settings::parse([rules.as_str(), "home_net=10.0.0.0/8", "variable=$X=any"]).unwrap();
        let source = read(&settings).unwrap();
        let paths: Vec<_> = source.files.iter().map(InputFile::path).collect();
        assert_eq!(paths, [path("a.rules"), path("b.rules")]);
        let bundle = Bundle::parse(&source.bytes).unwrap();
        assert_eq!(bundle.files.len(), 2);
        let variables: Vec<_> = bundle.variables.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(variables, ["HOME_NET", "X"]);
        assert_eq!(Bundle::parse(&bundle.to_bytes()), Some(bundle));
        for size in 0..source.bytes.len() {
            assert_eq!(Bundle::parse(&source.bytes[..size]), None);
        }
    }

    #[test]
    fn a_circle_of_includes_and_a_missing_file_are_errors_that_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rules");
        std::fs::write(&path, "include a.rules\n").unwrap();
        let settings = |name: &Path| Settings::parse([format!("rules={}", name.display())]).unwrap();
        assert!(read(&settings(&path)).unwrap_err().contains("expected no circle"));
        let missing = folder.path().join("none");
        assert!(
            read(&settings(&missing))
                .unwrap_err()
                .contains("none cannot be read")
        );
    }
}
