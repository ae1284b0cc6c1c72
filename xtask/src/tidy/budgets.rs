//! Limits of sizes that keep the code readable. Tests are not counted.

use syn::spanned::Spanned;
use syn::visit::Visit;

use super::Finding;
use super::rust::RustFile;
use super::tables::LONG_FILES;

/// Lines of a file.
pub const FILE_LINES: usize = 500;
/// Lines of a file that no excuse can raise.
pub const FILE_LINES_HARD: usize = 1000;
/// Lines of a function, from its signature to its closing brace.
pub const FUNCTION_LINES: usize = 70;

/// Checks one source.
pub fn check(source: &RustFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !source.is_test {
        findings.extend(check_length(source));
        let mut counter = Counter { source, findings: &mut findings };
        counter.visit_file(&source.syntax);
    }
    if !source.syntax.attrs.iter().any(|attribute| attribute.path().is_ident("doc")) {
        findings.push(Finding::new(&source.path, "module-docs", "begins without `//!`; say what the file is for"));
    }
    findings
}

fn check_length(source: &RustFile) -> Option<Finding> {
    let lines = source.counted_lines();
    let excused = source.is_table_file() || LONG_FILES.iter().any(|(path, _)| *path == source.path);
    let limit = if excused { FILE_LINES_HARD } else { FILE_LINES };
    let message =
        format!("has {lines} lines without its tests, the limit is {limit}; split it by what changes together");
    (lines > limit).then(|| Finding::new(&source.path, "file-lines", message))
}

struct Counter<'a> {
    source: &'a RustFile,
    findings: &'a mut Vec<Finding>,
}

impl Counter<'_> {
    fn function(&mut self, signature: &syn::Signature, start: usize, end: usize) {
        let line = signature.span().start().line;
        if self.source.is_test_line(line) || self.source.is_table(start) {
            return;
        }
        let name = signature.ident.to_string();
        let lines = end - line + 1;
        if lines > FUNCTION_LINES {
            let message = format!("`{name}` has {lines} lines, the limit is {FUNCTION_LINES}");
            self.findings.push(Finding::new(self.source.place(line), "function-lines", message));
        }
    }
}

impl<'ast> Visit<'ast> for Counter<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, item.span().start().line, item.block.span().end().line);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, item.span().start().line, item.block.span().end().line);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.sig, item.span().start().line, item.span().end().line);
        syn::visit::visit_trait_item_fn(self, item);
    }
}
