//! The modules of a crate, read from its source: the items that each defines, its imports, and the paths that
//! its code names.

use std::collections::{BTreeMap, BTreeSet};

use super::lexer::{Token, tokens};

/// Returns the text of a file of the crate by its path below `src/`, or `None` if the file does not exist.
pub(super) type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The names of a module's ancestors and of the module, from the root of the crate.
pub(super) type Path = Vec<String>;

/// A name that a `use` declaration brings into a module.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) path: Path,
    /// The name of the import in this module, or `None` for a glob.
    pub(super) name: Option<String>,
    /// True if the module re-exports the import (`pub use`, `pub(crate) use`).
    pub(super) is_public: bool,
    pub(super) line: usize,
}

/// A module: a file, or a `mod` block in one.
#[derive(Debug, Default)]
pub(super) struct Module {
    pub(super) file: String,
    /// The names of the items that the module defines, including modules.
    pub(super) items: BTreeSet<String>,
    pub(super) imports: Vec<Import>,
    /// Paths of at least two segments in the module's code, each with its line.
    pub(super) paths: Vec<(Path, usize)>,
}

pub(super) type Modules = BTreeMap<Path, Module>;

/// Returns the modules of the crate with the root file `root`, without those under `#[cfg(test)]`.
pub(super) fn load(root: &str, read: Read<'_>) -> Modules {
    let mut modules = Modules::new();
    load_file(root, Path::new(), read, &mut modules);
    modules
}

fn load_file(file: &str, path: Path, read: Read<'_>, modules: &mut Modules) {
    let Some(text) = read(file) else { return };
    let tokens = tokens(&text);
    let reader = Reader {
        tokens: &tokens,
        at: 0,
        end: tokens.len(),
    };
    load_body(reader, file, path, read, modules);
}

/// Returns the two paths that the file of a submodule may have.
fn files_of(parent: &str, name: &str) -> [String; 2] {
    let is_folder = ["mod.rs", "lib.rs", "main.rs"]
        .iter()
        .any(|file| parent.rsplit('/').next() == Some(file));
    let folder = match (is_folder, parent.rsplit_once('/')) {
        (true, None) => String::new(),
        (true, Some((folder, _))) => format!("{folder}/"),
        (false, _) => format!("{}/", parent.trim_end_matches(".rs")),
    };
    [format!("{folder}{name}.rs"), format!("{folder}{name}/mod.rs")]
}

/// A cursor in a list of tokens.
#[derive(Clone, Copy)]
struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    /// Returns the text of the token `ahead` tokens from here, or an empty text past the end.
    fn peek(&self, ahead: usize) -> &'a str {
        let at = self.at + ahead;
        if at < self.end { self.tokens[at].text } else { "" }
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |token| token.line)
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    /// Skips a group in brackets of any kind, including nested groups.
    fn skip_group(&mut self) {
        let mut depth = 0_usize;
        while !self.is_at_end() {
            match self.peek(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Skips an attribute. Returns true if the attribute compiles its item for tests only.
    fn skip_attribute(&mut self) -> bool {
        self.at += if self.peek(1) == "!" { 2 } else { 1 };
        let words = [
            self.peek(1),
            self.peek(2),
            self.peek(3),
            self.peek(4),
            self.peek(5),
        ];
        self.skip_group();
        matches!(
            words,
            ["cfg", "(", "test", ")", _] | ["cfg", "(", "all", "(", "test"]
        )
    }

    /// Skips an item up to the end of its body, or to its semicolon.
    fn skip_item(&mut self) {
        while !self.is_at_end() {
            match self.peek(0) {
                ";" => {
                    self.at += 1;
                    return;
                }
                "{" => {
                    self.skip_group();
                    return;
                }
                "(" | "[" => self.skip_group(),
                _ => self.at += 1,
            }
        }
    }

    /// Reads a use tree (The Rust Reference, "Use declarations") below `prefix`.
    fn use_tree(&mut self, prefix: &Path, is_public: bool, imports: &mut Vec<Import>) {
        let mut path = prefix.clone();
        let line = self.line();
        let import = |path, name| Import {
            path,
            name,
            is_public,
            line,
        };
        while !self.is_at_end() {
            match self.peek(0) {
                "::" => self.at += 1,
                "*" => {
                    self.at += 1;
                    imports.push(import(path, None));
                    return;
                }
                "{" => {
                    self.at += 1;
                    while !self.is_at_end() && self.peek(0) != "}" {
                        let before = self.at;
                        self.use_tree(&path, is_public, imports);
                        if self.peek(0) == "," || self.at == before {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                name if is_name(name) => {
                    path.push(name.to_owned());
                    self.at += 1;
                    if self.peek(0) == "::" {
                        continue;
                    }
                    if path.len() > 1 && name == "self" {
                        path.pop();
                    }
                    let mut known_as = path.last().cloned();
                    if self.peek(0) == "as" {
                        known_as = Some(self.peek(1).to_owned());
                        self.at += 2;
                    }
                    imports.push(import(path, known_as));
                    return;
                }
                _ => return,
            }
        }
    }

    /// Reads a path of names and `::`.
    fn path(&mut self) -> Path {
        let mut path = vec![self.peek(0).to_owned()];
        self.at += 1;
        while self.peek(0) == "::" && is_name(self.peek(1)) {
            path.push(self.peek(1).to_owned());
            self.at += 2;
        }
        path
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c == '_' || c.is_alphabetic())
}

/// Reads the items of a module.
fn load_body(mut reader: Reader<'_>, file: &str, path: Path, read: Read<'_>, modules: &mut Modules) {
    let mut module = Module {
        file: file.to_owned(),
        ..Module::default()
    };
    // The number of open brackets. Items of the module itself are at depth 0.
    let mut depth = 0_usize;
    let (mut is_public, mut is_test) = (false, false);
    while !reader.is_at_end() {
        let text = reader.peek(0);
        let next = reader.peek(1);
        if text == "#" && (next == "[" || next == "!" && reader.peek(2) == "[") {
            is_test |= reader.skip_attribute();
            continue;
        }
        if text == "pub" {
            is_public = true;
            reader.at += 1;
            if reader.peek(0) == "(" && matches!(reader.peek(1), "crate" | "super" | "self" | "in") {
                reader.skip_group();
            }
            continue;
        }
        if is_test {
            reader.skip_item();
            (is_public, is_test) = (false, false);
            continue;
        }
        match text {
            // `use<…>` in a return type is no import.
            "use" if next != "<" => {
                reader.at += 1;
                reader.use_tree(&Path::new(), is_public && depth == 0, &mut module.imports);
            }
            "mod" if is_name(next) && matches!(reader.peek(2), ";" | "{") => {
                module.items.insert(next.to_owned());
                let mut below = path.clone();
                below.push(next.to_owned());
                let is_block = reader.peek(2) == "{";
                reader.at += 2;
                let start = reader.at;
                if is_block {
                    reader.skip_group();
                    let block = Reader {
                        at: start + 1,
                        end: reader.at.saturating_sub(1),
                        ..reader
                    };
                    load_body(block, file, below, read, modules);
                } else {
                    let found = files_of(file, next).into_iter().find(|file| read(file).is_some());
                    if let Some(found) = found {
                        load_file(&found, below, read, modules);
                    }
                }
            }
            _ => {
                let is_item = matches!(
                    text,
                    "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union"
                );
                let is_modifier = matches!(next, "fn" | "unsafe" | "async" | "extern");
                if depth == 0 && is_item && is_name(next) && !is_modifier {
                    module.items.insert(next.to_owned());
                }
                if depth == 0 && text == "macro_rules" {
                    module.items.insert(reader.peek(2).to_owned());
                }
                match text {
                    "(" | "[" | "{" => depth += 1,
                    ")" | "]" | "}" => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if is_name(text) && next == "::" {
                    let line = reader.line();
                    let path = reader.path();
                    if path.len() > 1 {
                        module.paths.push((path, line));
                    }
                } else {
                    reader.at += 1;
                }
            }
        }
        is_public = is_public && matches!(text, "unsafe" | "async" | "extern" | "const");
    }
    modules.insert(path, module);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(source: &str) -> Module {
        let read = |file: &str| (file == "lib.rs").then(|| source.to_owned());
        load("lib.rs", &read).remove(&Path::new()).unwrap()
    }

    #[test]
    fn a_use_tree_is_every_name_that_it_imports() {
        let module = module("pub(crate) use crate::{a::{B, c::*, self}, d as e};\nuse super::f;");
        let imports: Vec<String> = module
            .imports
            .iter()
            .map(|import| {
                let name = import.name.as_deref().unwrap_or("*");
                format!(
                    "{} {name} {} {}",
                    import.path.join("::"),
                    import.is_public,
                    import.line
                )
            })
            .collect();
        assert_eq!(
            imports,
            [
                "crate::a::B B true 1",
                "crate::a::c * true 1",
                "crate::a a true 1",
                "crate::d e true 1",
                "super::f f false 2",
            ]
        );
    }

    #[test]
    fn items_and_paths_are_found_and_methods_are_not_items() {
        let module = module("pub const fn a() { b::c(); }\nstruct D; impl D { fn e() -> super::F {} }");
        assert_eq!(module.items.iter().collect::<Vec<_>>(), ["D", "a"]);
        let paths: Vec<String> = module.paths.iter().map(|(path, _)| path.join("::")).collect();
        assert_eq!(paths, ["b::c", "super::F"]);
    }

    #[test]
    fn what_is_compiled_for_tests_only_is_left_out() {
        let module = module(
            "#[cfg(test)]\nmod tests { use super::*; }\n#[cfg(all(test, x))] use a::b;\n#[cfg(test)] #[x(y)] fn c() { d::e() }\nfn f() {}",
        );
        assert!(module.imports.is_empty() && module.paths.is_empty());
        assert_eq!(module.items.iter().collect::<Vec<_>>(), ["f"]);
    }

    #[test]
    fn the_file_of_a_module_lies_beside_its_parents_or_in_a_folder() {
        assert_eq!(files_of("lib.rs", "a"), ["a.rs", "a/mod.rs"]);
        assert_eq!(files_of("a/mod.rs", "b"), ["a/b.rs", "a/b/mod.rs"]);
        assert_eq!(files_of("a/b.rs", "c"), ["a/b/c.rs", "a/b/c/mod.rs"]);
    }
}
