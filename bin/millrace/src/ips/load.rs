//! Rule files and their tables, as the command line names them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use millrace_ips_engine::detect::{CompileSettings, Ruleset, compile};
use millrace_ips_rules::files::{self, Class, Threshold};
use millrace_ips_rules::{Refusal, RuleSet, Variables, limits};

use crate::cli::RuleArgs;

/// Reads the files, and those that they include.
pub(super) fn load<'a>(args: &'a RuleArgs, paths: &[PathBuf]) -> Result<Loading<'a>> {
    load_with_data(args, paths, None)
}

/// Reads the files, and those that they include. The files of sets that rules also write are beneath `folder`, if it is given.
pub(super) fn load_with_data<'a>(
    args: &'a RuleArgs,
    paths: &[PathBuf],
    folder: Option<&Path>,
) -> Result<Loading<'a>> {
    let mut loading = Loading {
        args,
        variables: Variables::usual(),
        set: RuleSet::default(),
        classes: BTreeMap::new(),
        references: BTreeMap::new(),
        thresholds: Vec::new(),
        data: BTreeMap::new(),
        files: 0,
    };
    loading.apply_arguments()?;
    for path in paths {
        loading.file(path, 0)?;
    }
    loading.read_data(folder);
    Ok(loading)
}

/// A rule set with its tables.
pub(super) struct Loading<'a> {
    args: &'a RuleArgs,
    pub(super) variables: Variables,
    pub(super) set: RuleSet,
    /// Classes by name.
    pub(super) classes: BTreeMap<String, Class>,
    /// Beginnings of addresses by the names of reference systems.
    pub(super) references: BTreeMap<String, String>,
    pub(super) thresholds: Vec<Threshold>,
    /// The files that options of rules name, by the rule file and the name.
    data: BTreeMap<(String, String), Vec<u8>>,
    /// The number of files that were read.
    files: usize,
}

/// Reads a file up to one byte beyond the size limit of rule files, so that an endless file is rejected by
/// its size.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let most = limits::FILE_SIZE as u64 + 1;
    File::open(path)?.take(most).read_to_end(&mut text)?;
    Ok(text)
}

impl Loading<'_> {
    fn settings(&self) -> CompileSettings {
        CompileSettings {
            variables: self.variables.clone(),
            classes: self.classes.clone(),
            thresholds: self.thresholds.clone(),
            data: self.data.clone(),
            ..CompileSettings::default()
        }
    }

    /// Returns the compiled rules without a prefilter, and the rules that the compiler refuses.
    pub(super) fn compile_plainly(&self) -> (Ruleset, Vec<Refusal>) {
        let settings = CompileSettings {
            prefilter: None,
            ..self.settings()
        };
        compile(&self.set, &settings)
    }

    /// Returns the compiled rules, and the number of rules that were refused.
    pub(super) fn compile(&self) -> Result<(Ruleset, usize)> {
        let (ruleset, refusals) = compile(&self.set, &self.settings());
        if ruleset.rules.is_empty() {
            bail!("no rule loads; `millrace ips check` says why");
        }
        Ok((ruleset, self.set.refusals().len() + refusals.len()))
    }

    /// Reads the files that options of rules name: beside the rule file, unless the name is absolute. The compiler refuses the
    /// rules whose files cannot be read.
    fn read_data(&mut self, folder: Option<&Path>) {
        for (file, name, must_exist) in self.set.data_files() {
            let path = match folder.filter(|_| !must_exist) {
                Some(folder) => folder.join(name),
                None => Path::new(file).with_file_name("").join(name),
            };
            if let Ok(text) = read(&path) {
                self.data.insert((file.to_owned(), name.to_owned()), text);
            }
        }
    }

    /// Sets the variables of the command line, which override those of files.
    fn apply_arguments(&mut self) -> Result<()> {
        for text in &self.args.variables {
            let split = text.split_once('=');
            let (name, value) =
                split.ok_or_else(|| anyhow!("--set {text}: expected NAME=VALUE, as in HOME_NET=any"))?;
            let name = name.trim_start_matches('$');
            self.variables
                .set(name, value)
                .with_context(|| format!("--set {text}"))?;
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, depth: usize) -> Result<()> {
        let name = path.display().to_string();
        if depth > limits::INCLUDE_DEPTH {
            bail!(
                "{name}: files include each other more than {} deep; expected no circle of includes",
                limits::INCLUDE_DEPTH
            );
        }
        self.files += 1;
        if self.files > limits::FILES {
            bail!(
                "{name}: more than {} files are included; expected each rule file to be included once",
                limits::FILES
            );
        }
        let text = read(path).with_context(|| format!("cannot read {name}"))?;
        let mut file = files::parse(self.args.syntax, &name, &text);
        for (variable, value) in &file.variables {
            self.variables
                .set(variable, value)
                .with_context(|| format!("{name}: the variable {variable}"))?;
        }
        self.apply_arguments()?;
        let includes = std::mem::take(&mut file.includes);
        self.classes.append(&mut file.classes);
        self.references.append(&mut file.references);
        self.thresholds.append(&mut file.thresholds);
        self.set.add(&name, file, &self.variables);
        for include in includes {
            self.file(&path.with_file_name(include), depth + 1)?;
        }
        Ok(())
    }
}
