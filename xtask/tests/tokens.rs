//! `cargo xtask tokens`: what is the same code, and what is not.

use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::tokens::{self, sequence};

/// The first difference as (new token, its line, old token), if there is one.
fn difference(old: &str, new: &str) -> Option<(String, usize, String)> {
    let read = |text: &str| sequence::of(text).expect("the sample is Rust");
    let difference = read(old).first_difference(&read(new))?;
    Some((difference.new, difference.line, difference.old))
}

const SAMPLE: &str = "//! Old.\n\n/// Doc.\n#[inline]\nfn f(a: u8) -> u8 {\n    // why\n    a + 1 /* one */\n}\n";

#[test]
fn other_comments_and_white_space_are_the_same_code() {
    let other =
        "//! New,\n//! and longer.\n/** Doc,\n at length. */\n#[inline]\nfn f(\n    a: u8,\n) -> u8 { a + 1 }\n";
    assert_eq!(difference(SAMPLE, other), None);
    assert_eq!(difference("mod m {\n//! Inner.\nstruct S;\n}", "mod m { struct S; }"), None);
}

#[test]
fn names_literals_signs_and_attributes_are_code() {
    let found = |from: &str, to: &str| difference(SAMPLE, &SAMPLE.replace(from, to)).map(|(new, _, _)| new);
    assert_eq!(found("a + 1", "a + 2"), Some("`2`".into()));
    assert_eq!(found("a + 1", "b + 1"), Some("`b`".into()));
    assert_eq!(found("a + 1", "a - 1"), Some("`-`".into()));
    assert_eq!(found("#[inline]", "#[cold]"), Some("`cold`".into()));
    assert_eq!(found("#[inline]", ""), Some("`fn`".into()));
    let text = |content: &str| format!("const X: &str = \"{content}\";");
    assert_eq!(difference(&text("// a"), &text("// b")), Some(("`\"// b\"`".into(), 1, "`\"// a\"`".into())));
    assert_eq!(difference(&text("a b"), &text("a  b")).map(|(new, ..)| new), Some("`\"a  b\"`".into()));
}

#[test]
fn the_place_is_that_of_the_first_token_that_differs() {
    assert_eq!(difference("fn f() {}\n", "fn f() {}\n// x\nfn g() {}\n"), Some(("`fn`".into(), 3, "the end".into())));
    assert_eq!(difference("fn f() {}\nfn g() {}\n", "fn f() {}\n"), Some(("the end".into(), 1, "`fn`".into())));
}

#[test]
fn doc_attributes_that_are_no_comments_are_code() {
    assert!(difference("#[doc = \"a\"]\nstruct S;", "#[doc = \"b\"]\nstruct S;").is_some());
    assert!(difference("struct S;", "#[doc(hidden)]\nstruct S;").is_some());
    assert!(difference("/// é\n#[doc(hidden)] struct S;", "struct S;").is_some());
}

#[test]
fn the_last_comma_of_a_list_does_not_count_but_that_of_a_tuple_of_one_and_of_a_macro_does() {
    for (with, without) in [
        ("fn f(a: u8,) {}", "fn f(a: u8) {}"),
        ("fn f() { g(1, h::<A, B,>(2, 3,),); }", "fn f() { g(1, h::<A, B>(2, 3)); }"),
        ("struct S { a: u8, }", "struct S { a: u8 }"),
        ("fn f(a: Vec<Vec<u8>,>) {}", "fn f(a: Vec<Vec<u8>>) {}"),
        ("fn f() { let x = [1, 2,]; }", "fn f() { let x = [1, 2]; }"),
        ("fn f() { m!(g(1,)) }", "fn f() { m!(g(1)) }"),
    ] {
        assert_eq!(difference(with, without), None, "{with}");
    }
    for (one, other) in [
        ("fn f() { let x = (1,); }", "fn f() { let x = (1); }"),
        ("fn f() { g((1,)); }", "fn f() { g((1)); }"),
        ("fn f() -> (u8,) { return (1,) }", "fn f() -> (u8,) { return (1) }"),
        ("fn f() { m!(1, 2,) }", "fn f() { m!(1, 2) }"),
        ("fn f() { g(1, 2) }", "fn f() { g(1 + 2) }"),
        ("fn f() { a && b }", "fn f() { a & &b }"),
    ] {
        assert!(difference(one, other).is_some(), "{one}");
    }
}

#[test]
fn doc_comments_that_a_macro_may_read_are_known() {
    let docs = |text: &str| sequence::of(text).expect("the sample is Rust").read_docs.len();
    assert_eq!(docs("/// Help.\nstruct S;"), 0);
    assert_eq!(docs("/// Help.\n#[derive(clap::Args)]\nstruct S;"), 1);
    assert_eq!(docs("counters! {\n    /// Help.\n    a,\n}"), 1);
}

// ---- with a repository

/// A repository with one commit, below cargo's directory for tests.
struct Repository(PathBuf);

impl Repository {
    fn new(name: &str, files: &[(&str, &str)]) -> Repository {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if root.exists() {
            std::fs::remove_dir_all(&root).expect("the last run's repository can be removed");
        }
        std::fs::create_dir_all(&root).expect("there is room for a repository");
        let repository = Repository(root);
        repository.git(&["init", "--quiet"]);
        files.iter().for_each(|(path, text)| repository.write(path, text));
        repository.git(&["add", "."]);
        let author = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"];
        repository.git(&[&author[..], &["commit", "--quiet", "--no-verify", "-m", "first"]].concat());
        repository
    }

    fn git(&self, arguments: &[&str]) {
        let done = Command::new("git").args(arguments).current_dir(&self.0).status().expect("git can be run");
        assert!(done.success(), "git {arguments:?}");
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::write(self.0.join(path), text).expect("the file can be written");
    }

    fn compare(&self, paths: &[&str]) -> tokens::Outcome {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        tokens::run(&self.0, "HEAD", &paths).expect("the trees can be compared")
    }
}

const BODY: &str = "fn one() {}\nfn two() {}\nfn three() {}\nfn four() {}\n";

#[test]
fn a_tree_with_other_comments_has_no_difference() {
    let files = [("a.rs", "// old\nfn f() {}\n"), ("b.rs", BODY), ("c.md", "c\n")];
    let repository = Repository::new("tokens-comments", &files);
    repository.write("a.rs", "// new\nfn f() {}\n");
    let outcome = repository.compare(&[]);
    assert_eq!((outcome.compared, outcome.differ_in_text), (2, 1));
    assert_eq!((outcome.differences.len(), outcome.notes.len()), (0, 0), "{outcome}");
}

#[test]
fn files_added_removed_renamed_and_changed_are_told() {
    let files = [("a.rs", "fn f() {}\n"), ("gone.rs", "fn a() -> u8 { 1 }\n"), ("old.rs", BODY), ("c.md", "c\n")];
    let repository = Repository::new("tokens-files", &files);
    repository.write("a.rs", "fn f() {}\nfn g() {}\n");
    repository.write("new.rs", "struct New { field: [u8; 7] }\n");
    repository.write("c.md", "d\n");
    repository.git(&["mv", "old.rs", "renamed.rs"]);
    repository.git(&["rm", "--quiet", "gone.rs"]);
    let outcome = repository.compare(&[]);
    assert_eq!(outcome.compared, 2, "{outcome}");
    assert_eq!(
        outcome.differences,
        ["a.rs:2: `fn` stands where the end stood (then line 1)", "gone.rs: was removed", "new.rs: was added"]
    );
    assert_eq!(outcome.notes, ["c.md differs and is not Rust; it is not compared", "renamed.rs was old.rs"]);
    let part = repository.compare(&["new.rs"]);
    assert_eq!(part.differences, ["new.rs: was added"]);
}

#[test]
fn a_revision_or_a_path_that_is_not_there_is_an_error() {
    let repository = Repository::new("tokens-errors", &[("a.rs", BODY)]);
    assert!(tokens::run(&repository.0, "no-such-revision", &[]).is_err());
    assert!(tokens::run(&repository.0, "HEAD", &["no/such/path".to_owned()]).is_err());
}
