//! Replays the corpora: what a fuzzer found once is a test from then on.

use std::path::Path;

#[test]
fn every_corpus_file_passes_its_target() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files = 0;
    for (name, target) in millrace_fuzz::TARGETS {
        let corpus = corpora.join(name);
        let entries = std::fs::read_dir(&corpus)
            .unwrap_or_else(|error| panic!("{}: {error}: each target has a corpus", corpus.display()));
        for entry in entries {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            target(&std::fs::read(&path).unwrap());
            files += 1;
        }
    }
    assert!(files > 0, "the corpora are empty");
}

#[test]
fn every_target_has_a_fuzzer_and_every_fuzzer_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let mut fuzzers: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    fuzzers.sort();
    let mut targets: Vec<&str> = millrace_fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
    targets.sort_unstable();
    assert_eq!(fuzzers, targets);
}
